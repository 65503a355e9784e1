package kubernetes

import (
	"encoding/json"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// bootstrapVariable has the bootstrap of a gRPC client.
const bootstrapVariable = "GRPC_XDS_BOOTSTRAP_CONFIG"

// workload is what counts of a Pod, or of what makes Pods.
type workload struct {
	Kind     string            `json:"-"`
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		podSpec

		Template struct {
			Spec podSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type podSpec struct {
	Containers []container `json:"containers"`
}

type container struct {
	Name string     `json:"name"`
	Env  []variable `json:"env"`
}

type variable struct {
	Name      string          `json:"name"`
	Value     string          `json:"value"`
	ValueFrom json.RawMessage `json:"valueFrom"` //nolint:tagliatelle // as Kubernetes calls it
}

// clientsFound names gRPC clients whose bootstrap has no locality.
func (a *Analysis) clientsFound() (out []Finding) {
	for i := range a.workloads {
		w := &a.workloads[i]
		spec := w.Spec.Template.Spec
		if w.Kind == "Pod" {
			spec = w.Spec.podSpec
		}
		for _, c := range spec.Containers {
			if message := bootstrapTrouble(c.Env); message != "" {
				out = append(out, Finding{
					Object:  w.Kind + " " + w.Metadata.Namespace + "/" + w.Metadata.Name,
					Message: fmt.Sprintf("container %s: %s", c.Name, message),
				})
			}
		}
	}
	return out
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// bootstrapTrouble says what is wrong with the bootstrap in environment variables; empty
// if nothing is, or there is none. Kubernetes expands variables that stand before.
func bootstrapTrouble(env []variable) string {
	known := map[string]bool{}
	for _, e := range env {
		if e.Name != bootstrapVariable || e.Value == "" {
			known[e.Name] = e.Value != "" || len(e.ValueFrom) > 0
			continue
		}
		for _, m := range reference.FindAllStringSubmatch(e.Value, -1) {
			if !known[m[1]] {
				return fmt.Sprintf("%s uses $(%s), which no variable before it has: Kubernetes leaves it as it is; put the variable before", e.Name, m[1])
			}
		}
		var bootstrap struct {
			Node struct {
				ID       string            `json:"id"`
				Locality map[string]string `json:"locality"`
				Metadata map[string]any    `json:"metadata"`
			} `json:"node"`
		}
		if err := json.Unmarshal([]byte(e.Value), &bootstrap); err != nil {
			return fmt.Sprintf("%s is no JSON: %v", e.Name, err)
		}
		machine, _ := bootstrap.Node.Metadata[rpc.MachineKey].(string)
		for _, part := range []string{"region", "zone"} {
			if machine == "" && bootstrap.Node.Locality[part] == "" {
				return fmt.Sprintf("the node of %s has no %s, so the client gets the weights of no zone: set node.locality.%s from "+
					"metadata.labels['topology.kubernetes.io/%s'] (Kubernetes 1.35 or newer), as examples/kubernetes/grpc-client.yaml does, "+
					"or node.metadata.%s from spec.nodeName", e.Name, part, part, part, rpc.MachineKey)
			}
		}
		if bootstrap.Node.ID == "" {
			return "the node of " + e.Name + " has no id: set it from metadata.name, or Isobar can't tell the Pods apart"
		}
	}
	return ""
}
