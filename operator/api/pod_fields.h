// The fields of spec.podTemplate, as fields.h lists the others: what placement must know is typed, what only the pod
// needs is passed on as it was written. Private to the room. Thread-safety: pure functions.
//
// Besides what fields.h says an archive A offers: a.Opaque(name, kind, text) for a value that is kept as JSON text,
// empty where it is absent; a.Passed(list, text) for members of this object, kept together as one JSON object in text;
// a.Refused(name, why) for a field that Kubernetes has here and that we do not take.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <type_traits>

#include "operator/api/training_job.h"

namespace trainyard::api {

enum class OpaqueKind { kText, kFlag, kObject, kObjects /* a list of them */, kNamedObjects /* each with its name */ };

struct OpaqueField {
  const char* name;
  OpaqueKind kind;
};

// Fields of a pod's spec that go into every pod as they are.
inline constexpr std::array kPassedOn = {
    OpaqueField{"serviceAccountName", OpaqueKind::kText},
    OpaqueField{"automountServiceAccountToken", OpaqueKind::kFlag},
    OpaqueField{"imagePullSecrets", OpaqueKind::kNamedObjects},
    OpaqueField{"securityContext", OpaqueKind::kObject},
    OpaqueField{"hostNetwork", OpaqueKind::kFlag},
    OpaqueField{"hostIPC", OpaqueKind::kFlag},
    OpaqueField{"dnsPolicy", OpaqueKind::kText},
    OpaqueField{"dnsConfig", OpaqueKind::kObject},
    OpaqueField{"runtimeClassName", OpaqueKind::kText},
    OpaqueField{"schedulerName", OpaqueKind::kText},
    OpaqueField{"initContainers", OpaqueKind::kNamedObjects},
    OpaqueField{"containers", OpaqueKind::kNamedObjects},
    OpaqueField{"volumes", OpaqueKind::kNamedObjects},
};

// Fields that Kubernetes has and a job's pods cannot have.
struct RefusedField {
  const char* name;
  const char* why;
};
inline constexpr std::array kRefusedInPods = {
    RefusedField{"nodeName", "nodes are chosen for the whole gang; use nodeSelector or affinity.nodeAffinity"},
    RefusedField{"priorityClassName", "use spec.priorityClassName, which the queue goes by as well"},
    RefusedField{"priority", "use spec.priorityClassName"},
    RefusedField{"restartPolicy", "it is Never: failures are handled for the whole gang, see spec.recovery"},
    RefusedField{"schedulingGates", "the gang has its own; a webhook may add others"},
    RefusedField{"topologySpreadConstraints",
                 "nodes are chosen for the whole gang before its pods exist; use spec.gpus.topology"},
    RefusedField{"terminationGracePeriodSeconds", "use spec.recovery.maxGraceSeconds"},
    RefusedField{"activeDeadlineSeconds", "it would end single pods of the gang"},
    RefusedField{"hostname", "the operator owns it"},
    RefusedField{"subdomain", "the operator owns it"},
    RefusedField{"overhead", "it follows from runtimeClassName"},
};
inline constexpr std::array kRefusedAffinities = {
    RefusedField{"podAffinity", "the gang's nodes are chosen before its pods exist; use spec.gpus.topology"},
    RefusedField{"podAntiAffinity", "each pod of the gang has a node of its own, chosen before the pods exist"},
};

// T itself for reading, const T for writing.
template <typename V, typename T>
concept Of = std::same_as<std::remove_const_t<V>, T>;

template <typename A, Of<Toleration> V>
void Fields(A& a, V& v) {
  a("key", v.key);
  a("operator", v.op);
  a("value", v.value);
  a("effect", v.effect);
  a("tolerationSeconds", v.seconds);
}

template <typename A, Of<NodeRequirement> V>
void Fields(A& a, V& v) {
  a("key", v.key);
  a("operator", v.op);
  a("values", v.values);
}

template <typename A, Of<NodeTerm> V>
void Fields(A& a, V& v) {
  a("matchExpressions", v.expressions);
  a("matchFields", v.fields);
}

template <typename A, Of<PodTemplate> V>
void Fields(A& a, V& v) {
  a.OptionalGroup("metadata", !v.labels.empty() || !v.annotations.empty(), [&](auto& metadata) {
    metadata("labels", v.labels);
    metadata("annotations", v.annotations);
  });
  const bool required = !v.nodes.affinity.empty();
  const bool affinity = required || !v.preferences.empty();
  const bool spec = affinity || !v.nodes.Empty() || !v.rest.empty();
  a.OptionalGroup("spec", spec, [&](auto& spec) {
    spec("nodeSelector", v.nodes.node_selector);
    spec.OptionalGroup("affinity", affinity, [&](auto& affinities) {
      affinities.OptionalGroup("nodeAffinity", affinity, [&](auto& nodes) {
        nodes.OptionalGroup("requiredDuringSchedulingIgnoredDuringExecution", required,
                            [&](auto& terms) { terms.NonEmpty("nodeSelectorTerms", v.nodes.affinity); });
        nodes.Opaque("preferredDuringSchedulingIgnoredDuringExecution", OpaqueKind::kObjects, v.preferences);
      });
      for (const RefusedField& field : kRefusedAffinities) affinities.Refused(field.name, field.why);
    });
    spec("tolerations", v.nodes.tolerations);
    spec.Passed(kPassedOn, v.rest);
    for (const RefusedField& field : kRefusedInPods) spec.Refused(field.name, field.why);
  });
}

}  // namespace trainyard::api
