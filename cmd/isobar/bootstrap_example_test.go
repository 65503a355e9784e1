package main

import (
	"os"
	"reflect"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
)

// TestSidecarExampleIsTheBootstrap: the configuration in the example of an Envoy beside
// a program is what the command prints, but for the listener.
func TestSidecarExampleIsTheBootstrap(t *testing.T) {
	data, err := os.ReadFile("../../examples/kubernetes/envoy-sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name string `yaml:"name"`
						Env  []struct {
							Name  string `yaml:"name"`
							Value string `yaml:"value"`
						} `yaml:"env"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(data, &deployment); err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	for _, c := range deployment.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "CONFIGURATION" {
				if err := yaml.Unmarshal([]byte(e.Value), &got); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	printed := output(t, "envoy", "--server", "isobar.isobar.svc:18000", "--cluster", "web", "--node-id", "$(POD)", "--locality", "$(REGION)/$(ZONE)",
		"--ca", "/etc/isobar-client/ca.crt", "--cert", "/etc/isobar-client/tls.crt", "--key", "/etc/isobar-client/tls.key")
	if err := yaml.Unmarshal(printed, &want); err != nil {
		t.Fatal(err)
	}
	static, _ := got["static_resources"].(map[string]any)
	delete(static, "listeners")
	if static, ok := want["static_resources"].(map[string]any); ok {
		delete(static, "listeners")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// TestExamplesHaveNoFindings: isobar kubernetes analyze finds nothing in the examples.
func TestExamplesHaveNoFindings(t *testing.T) {
	a, err := kubernetes.NewAnalysis(&kubernetes.Config{Cluster: kubernetes.Cluster{Policies: true}}, "isobar/isobar")
	if err != nil {
		t.Fatal(err)
	}
	if err := addFile(a, "../../examples/kubernetes", nil); err != nil {
		t.Fatal(err)
	}
	if found := a.Findings(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
