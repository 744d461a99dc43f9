# Whole stories on real nodes. Their transcripts are their output: ctest -V -R cluster_e2e.
if(TARGET trainyard-operator AND TARGET trainyard-trainer AND NOT TRAINYARD_SANITIZE)
  add_test(NAME cluster_e2e COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/e2e.sh" --bin "${CMAKE_BINARY_DIR}/bin")
  add_test(NAME cluster_checkpoints COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/checkpoints_e2e.sh" --bin "${CMAKE_BINARY_DIR}/bin")
  # Alone, since they train on every core.
  set_tests_properties(cluster_e2e cluster_checkpoints PROPERTIES LABELS cluster TIMEOUT 1800 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
  # Fewer steps than by hand, and all of the story nevertheless.
  set_tests_properties(cluster_e2e PROPERTIES ENVIRONMENT TRAINYARD_E2E_STEPS=160)
endif()
