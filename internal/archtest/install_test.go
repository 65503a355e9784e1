//go:build !race

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
)

// manifest is an object of Kubernetes, as far as it is checked here.
type manifest struct {
	Kind  string            `yaml:"kind"`
	Data  map[string]string `yaml:"data"`
	Rules []struct {
		Groups    []string `yaml:"apiGroups"` //nolint:tagliatelle // as Kubernetes calls it
		Resources []string `yaml:"resources"`
		Verbs     []string `yaml:"verbs"`
	} `yaml:"rules"`
	Spec struct {
		Replicas int `yaml:"replicas"`
		Ports    []struct {
			Port       int    `yaml:"port"`
			TargetPort string `yaml:"targetPort"` //nolint:tagliatelle // as Kubernetes calls it
		} `yaml:"ports"`
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"` //nolint:tagliatelle // as Kubernetes calls it
				Containers []struct {
					Args []string `yaml:"args"`
					Env  []struct {
						Name  string `yaml:"name"`
						Value string `yaml:"value"`
					} `yaml:"env"`
					Ports []struct {
						Name string `yaml:"name"`
						Port int    `yaml:"containerPort"` //nolint:tagliatelle // as Kubernetes calls it
					} `yaml:"ports"`
					Mounts []struct {
						Path string `yaml:"mountPath"` //nolint:tagliatelle // as Kubernetes calls it
					} `yaml:"volumeMounts"` //nolint:tagliatelle // the same
				} `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

// TestKubernetesManifestHolds: the configuration is one that the server takes,
// and ports, paths and times of the other objects are those of it.
func TestKubernetesManifestHolds(t *testing.T) {
	objects := manifests(t, filepath.Join(moduleRoot(t), "deploy", "kubernetes", "isobar.yaml"))
	cfg, warnings, err := config.Decode("isobar.yaml", []byte(objects["ConfigMap"].Data["isobar.yaml"]))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	set := objects["StatefulSet"].Spec
	pod := set.Template.Spec
	if set.Replicas != 1 || len(pod.Containers) != 1 || time.Duration(pod.Grace)*time.Second < cfg.StopSpread+10*time.Second {
		t.Fatalf("replicas %d, containers %d, grace %d s for a stop over %s", set.Replicas, len(pod.Containers), pod.Grace, cfg.StopSpread)
	}
	box := pod.Containers[0]
	ports := map[string]int{}
	for _, p := range box.Ports {
		ports[p.Name] = p.Port
	}
	if !strings.HasSuffix(cfg.XDS.Listen, ":"+strconv.Itoa(ports["xds"])) || !strings.HasSuffix(cfg.Admin.Listen, ":"+strconv.Itoa(ports["admin"])) {
		t.Errorf("ports %v, but it listens on %s and %s", ports, cfg.XDS.Listen, cfg.Admin.Listen)
	}
	for _, p := range objects["Service"].Spec.Ports {
		if ports[p.TargetPort] != p.Port {
			t.Errorf("the Service's port %d leads to %s", p.Port, p.TargetPort)
		}
	}
	var mounted []string
	for _, m := range box.Mounts {
		mounted = append(mounted, m.Path)
	}
	for _, file := range []string{box.Args[len(box.Args)-1], cfg.StateDir + "/", cfg.XDS.TLS.Cert, cfg.XDS.TLS.Key, cfg.XDS.TLS.ClientCA, cfg.Admin.TLS.Cert} {
		if !strings.Contains(strings.Join(mounted, "/ ")+"/", filepath.Dir(file)+"/") {
			t.Errorf("%s is not below %v", file, mounted)
		}
	}
}

// TestPermissionsAreThoseOfTheCode: the manifests give the service account what the
// provider asks for, and nothing else.
func TestPermissionsAreThoseOfTheCode(t *testing.T) {
	granted := func(m manifest) (out []string) {
		for _, r := range m.Rules {
			for _, group := range r.Groups {
				for _, resource := range r.Resources {
					out = append(out, group+"/"+resource+" "+strings.Join(r.Verbs, " "))
				}
			}
		}
		slices.Sort(out)
		return out
	}
	needed := func(nodes func(is bool) bool) (out []string) {
		for _, p := range kubernetes.Permissions(true) {
			if nodes(p.Resource == "nodes") {
				out = append(out, p.Group+"/"+p.Resource+" "+strings.Join(p.Verbs, " "))
			}
		}
		slices.Sort(out)
		return out
	}
	deploy := filepath.Join(moduleRoot(t), "deploy", "kubernetes")
	whole, some := manifests(t, filepath.Join(deploy, "isobar.yaml")), manifests(t, filepath.Join(deploy, "rbac-namespaces.yaml"))
	for name, tc := range map[string]struct{ got, want []string }{
		"isobar.yaml, ClusterRole":          {granted(whole["ClusterRole"]), needed(func(bool) bool { return true })},
		"rbac-namespaces.yaml, Role":        {granted(some["Role"]), needed(func(is bool) bool { return !is })},
		"rbac-namespaces.yaml, ClusterRole": {granted(some["ClusterRole"]), needed(func(is bool) bool { return is })},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s gives %v, want %v", name, tc.got, tc.want)
		}
	}
}

// TestClientInKubernetes: the bootstrap of the example is JSON that names the server of
// the manifest, and uses variables that stand before it.
func TestClientInKubernetes(t *testing.T) {
	box := manifests(t, filepath.Join(moduleRoot(t), "examples", "kubernetes", "grpc-client.yaml"))["Deployment"].Spec.Template.Spec.Containers[0]
	known := map[string]bool{}
	for _, e := range box.Env {
		for _, m := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(e.Value, -1) {
			if !known[m[1]] {
				t.Errorf("%s uses %s, which does not stand before it", e.Name, m[1])
			}
		}
		known[e.Name] = true
	}
	var bootstrap struct {
		Servers []struct {
			URI string `json:"server_uri"`
		} `json:"xds_servers"`
		Node struct {
			Locality map[string]string `json:"locality"`
		} `json:"node"`
	}
	if err := json.Unmarshal([]byte(box.Env[len(box.Env)-1].Value), &bootstrap); err != nil {
		t.Fatal(err)
	}
	if bootstrap.Servers[0].URI != "isobar.isobar.svc:18000" || len(bootstrap.Node.Locality) != 2 {
		t.Errorf("bootstrap %+v", bootstrap)
	}
}

// TestInstalledPathsAgree: unit, image and manifest have the program, its
// configuration and its state in the same places, and leave it time to stop.
func TestInstalledPathsAgree(t *testing.T) {
	deploy := filepath.Join(moduleRoot(t), "deploy")
	texts := map[string][]string{
		filepath.Join("systemd", "isobar.service"): {
			"ExecStart=/usr/local/bin/isobar serve -c /etc/isobar/isobar.yaml", "StateDirectory=isobar", "WorkingDirectory=/var/lib/isobar", "TimeoutStopSec=45",
		},
		filepath.Join("container", "Dockerfile"): {
			`ENTRYPOINT ["/usr/local/bin/isobar"]`, `CMD ["serve", "-c", "/etc/isobar/isobar.yaml"]`, "WORKDIR /var/lib/isobar", "USER 65532:65532",
		},
		filepath.Join("kubernetes", "isobar.yaml"): {"args: [serve, -c, /etc/isobar/isobar.yaml]", "mountPath: /var/lib/isobar", "runAsUser: 65532"},
	}
	for name, wants := range texts {
		text := string(read(t, filepath.Join(deploy, name)))
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not have %s", name, want)
			}
		}
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read(t, filepath.Join(moduleRoot(t), "go.mod")))
	image := read(t, filepath.Join(deploy, "container", "Dockerfile"))
	if !bytes.Contains(image, append([]byte("FROM golang:"), version[1]...)) {
		t.Errorf("the image is not built with Go %s", version[1])
	}
	// The linker says nothing of a variable that there is not.
	commit := regexp.MustCompile(`-X main\.(\w+)=\$\{COMMIT\}`).FindSubmatch(image)
	if commit == nil || !bytes.Contains(read(t, filepath.Join(moduleRoot(t), "cmd", "isobar", "version.go")), fmt.Appendf(nil, "\nvar %s string\n", commit[1])) {
		t.Error("the image is built without the commit, or the program has no variable for it")
	}
}

func manifests(t *testing.T, file string) map[string]manifest {
	t.Helper()
	out := map[string]manifest{}
	for d := yaml.NewDecoder(bytes.NewReader(read(t, file))); ; {
		var m manifest
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatal(err)
		}
		out[m.Kind] = m
	}
}

// TestChartHasItsFiles: the chart installs the CRDs that make crds generates, and the
// alerts that are documented.
func TestChartHasItsFiles(t *testing.T) {
	deploy := filepath.Join(moduleRoot(t), "deploy")
	files, err := filepath.Glob(filepath.Join(deploy, "kubernetes", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !bytes.Equal(read(t, file), read(t, filepath.Join(deploy, "helm", "isobar", "files", "crds", filepath.Base(file)))) {
			t.Errorf("%s differs from that of the chart: run make crds", filepath.Base(file))
		}
	}
	if !bytes.Equal(read(t, filepath.Join(deploy, "prometheus", "isobar.rules.yml")), read(t, filepath.Join(deploy, "helm", "isobar", "files", "isobar.rules.yml"))) {
		t.Error("deploy/prometheus/isobar.rules.yml differs from that of the chart: copy it to deploy/helm/isobar/files")
	}
}
