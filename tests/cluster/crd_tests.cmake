# crds/trainingjobs.yaml on a real API server: the tables of tests/golden/crd, and what users see of it.
trainyard_cluster_test(crd_admission_test
  SOURCES crd_test.cpp crd_view_test.cpp ../operator/api/admission_table.cpp ../operator/api/sample_jobs.cpp
  LINKS operator_api)
