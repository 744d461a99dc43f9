# Copies FROM to TO with the one line that contains MARK replaced by REPLACEMENT. Fails unless exactly one line does, so
# that a mutant can never silently be the original.
#   cmake -DFROM=... -DTO=... -DMARK=... -DREPLACEMENT=... -P mutate.cmake
file(READ "${FROM}" text)
string(FIND "${text}" "${MARK}" first)
string(FIND "${text}" "${MARK}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR "${FROM}: expected exactly one line with '${MARK}'")
endif()
string(SUBSTRING "${text}" 0 ${first} before)
string(FIND "${before}" "\n" line_start REVERSE)
math(EXPR line_start "${line_start} + 1")
string(SUBSTRING "${text}" 0 ${line_start} head)
string(SUBSTRING "${text}" ${first} -1 rest)
string(FIND "${rest}" "\n" line_end)
string(SUBSTRING "${rest}" ${line_end} -1 tail)
file(WRITE "${TO}" "${head}${REPLACEMENT}${tail}")
