# charts/trainyard: what it renders, and what its rights are good for on a real API server.
add_library(tests_cluster_chart STATIC chart.cpp)
target_compile_definitions(tests_cluster_chart PUBLIC TRAINYARD_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(tests_cluster_chart PUBLIC tests_cluster operator_api)

trainyard_test(chart_test SOURCES chart_test.cpp LINKS tests_cluster_chart trainer_contract TIMEOUT 300 LABELS cluster)

if(TARGET trainyard-operator)
  trainyard_test(chart_cluster_test SOURCES chart_cluster_test.cpp chart_operator.cpp LINKS tests_cluster_chart
    DEPENDS trainyard-operator TIMEOUT 600 LABELS cluster)
  # A control plane of its own, since an operator that looks after all namespaces would meddle with other tests; the set-up
  # of the fixture builds the programs.
  set_tests_properties(chart_cluster_test PROPERTIES FIXTURES_REQUIRED cluster)
endif()
