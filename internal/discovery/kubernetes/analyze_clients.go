package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
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
	Name    string     `json:"name"`
	Command []string   `json:"command"`
	Args    []string   `json:"args"`
	Env     []variable `json:"env"`
}

type variable struct {
	Name      string          `json:"name"`
	Value     string          `json:"value"`
	ValueFrom json.RawMessage `json:"valueFrom"` //nolint:tagliatelle // as Kubernetes calls it
}

// clientsFound names gRPC clients and Envoys whose bootstrap has no locality.
func (a *Analysis) clientsFound() (out []Finding) {
	for i := range a.workloads {
		w := &a.workloads[i]
		spec := w.Spec.Template.Spec
		if w.Kind == "Pod" {
			spec = w.Spec.podSpec
		}
		for _, c := range spec.Containers {
			if message := cmp.Or(bootstrapTrouble(c.Env), envoyTrouble(&c)); message != "" {
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

// unexpanded returns the name of a reference in a text that no variable has. Kubernetes
// leaves it as it is.
func unexpanded(text string, env []variable) string {
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(env, func(e variable) bool { return e.Name == m[1] && (e.Value != "" || len(e.ValueFrom) > 0) }) {
			return m[1]
		}
	}
	return ""
}

// node is what the bootstrap of a client says of it.
type node struct {
	ID       string            `json:"id"`
	Locality map[string]string `json:"locality"`
	Metadata map[string]any    `json:"metadata"`
}

// trouble says what the node of a bootstrap lacks; empty if nothing.
func (n *node) trouble(bootstrap, example string) string {
	machine, _ := n.Metadata[rpc.MachineKey].(string)
	for _, part := range []string{"region", "zone"} {
		if machine == "" && n.Locality[part] == "" {
			return fmt.Sprintf("the node of %s has no %s, so the client gets the weights of no zone: set node.locality.%s from "+
				"metadata.labels['topology.kubernetes.io/%s'] (Kubernetes 1.35 or newer), as examples/kubernetes/%s does, "+
				"or node.metadata.%s from spec.nodeName", bootstrap, part, part, part, example, rpc.MachineKey)
		}
	}
	if n.ID == "" {
		return "the node of " + bootstrap + " has no id: set it from metadata.name, or Isobar can't tell the Pods apart"
	}
	return ""
}

// bootstrapTrouble says what is wrong with the bootstrap of a gRPC client in environment
// variables; empty if nothing is, or there is none. Kubernetes expands variables that
// stand before.
func bootstrapTrouble(env []variable) string {
	for i, e := range env {
		if e.Name != bootstrapVariable || e.Value == "" {
			continue
		}
		if name := unexpanded(e.Value, env[:i]); name != "" {
			return fmt.Sprintf("%s uses $(%s), which no variable before it has: Kubernetes leaves it as it is; put the variable before", e.Name, name)
		}
		var bootstrap struct {
			Node node `json:"node"`
		}
		if err := json.Unmarshal([]byte(e.Value), &bootstrap); err != nil {
			return fmt.Sprintf("%s is no JSON: %v", e.Name, err)
		}
		return bootstrap.Node.trouble(e.Name, "grpc-client.yaml")
	}
	return ""
}

// flag returns the value of an option of a program; "" if it is not there.
func (c *container) flag(name string) string {
	args := slices.Concat(c.Command, c.Args)
	for i, arg := range args {
		if value, is := strings.CutPrefix(arg, name+"="); is {
			return value
		}
		if arg == name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// envoyTrouble says what is wrong with the configuration that an Envoy has in its
// arguments, by itself or in a variable; empty if nothing is, there is none, or it uses
// no xDS.
func envoyTrouble(c *container) string {
	text, of, before := c.flag("--config-yaml"), "--config-yaml", c.Env
	if m := reference.FindStringSubmatch(text); m != nil && m[0] == strings.TrimSpace(text) {
		i := slices.IndexFunc(c.Env, func(e variable) bool { return e.Name == m[1] })
		if i < 0 || c.Env[i].Value == "" {
			return "" // of a ConfigMap, or of envFrom
		}
		text, of, before = c.Env[i].Value, m[1], c.Env[:i]
	}
	if !strings.Contains(text, "dynamic_resources") && !strings.Contains(text, "eds_config") {
		return ""
	}
	if name := unexpanded(text, before); name != "" {
		return fmt.Sprintf("%s uses $(%s), which no variable before it has: Kubernetes leaves it as it is; put the variable before", of, name)
	}
	var bootstrap struct {
		Node *node `json:"node"`
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(data, &bootstrap)
	}
	if err != nil {
		return fmt.Sprintf("%s is no configuration of Envoy: %v", of, err)
	}
	if bootstrap.Node == nil {
		if cmp.Or(c.flag("-c"), c.flag("--config-path")) != "" {
			return "" // the file may have it
		}
		bootstrap.Node = &node{}
	}
	n := bootstrap.Node
	n.ID = cmp.Or(n.ID, c.flag("--service-node"))
	if zone := c.flag("--service-zone"); zone != "" && n.Locality["zone"] == "" {
		n.Locality = map[string]string{"region": n.Locality["region"], "zone": zone}
	}
	return n.trouble(of, "envoy-sidecar.yaml")
}
