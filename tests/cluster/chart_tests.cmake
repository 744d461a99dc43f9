# charts/trainyard: what it renders, and what its rights are good for on a real API server.
add_library(tests_cluster_chart STATIC chart.cpp)
target_compile_definitions(tests_cluster_chart PUBLIC TRAINYARD_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(tests_cluster_chart PUBLIC tests_cluster operator_api)

trainyard_test(chart_test SOURCES chart_test.cpp LINKS tests_cluster_chart trainer_contract TIMEOUT 300 LABELS cluster)
