package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

const (
	maxNamespaces = 1_000
	maxZones      = 10_000

	kubernetesNameHint = "write SERVICE.NAMESPACE:PORT, with the port of the Service, for example checkout.shop:8080"
)

// KubernetesDiscovery is a Kubernetes cluster, whose Services Isobar balances.
type KubernetesDiscovery struct {
	Kubeconfig string   `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; file; empty = the service account of the Pod
	Context    string   `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; of the file; empty = the current one
	Namespaces []string `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; sorted; empty = all
	Selector   string   `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; label selector of Services; empty = all
	// Policies lets LoadBalancingPolicies of the cluster count.
	Policies bool `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	// Regions gives the region of a zone whose Nodes do not name it.
	Regions map[string]string `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	// DefaultLocality is where endpoints without a zone are, and its region that of
	// zones without a region; zero = Isobar leaves such endpoints out.
	DefaultLocality isobar.Locality
	// Template has the settings of Services that Services does not name, without a
	// name and localities.
	Template isobar.Service
	Ceiling  float64          // of localities without settings; 0 = isobar.DefaultCeiling
	Services []isobar.Service // settings by name; their localities have no endpoints
}

func readKubernetesDiscovery(v strict.Value, d Defaults, names *[]placedName) *KubernetesDiscovery {
	template := d.service("")
	template.Localities = nil
	s := &KubernetesDiscovery{Template: template, Ceiling: d.Ceiling}
	var contextAt *strict.Value
	var services []placedName
	v.Object([]strict.Field{
		fileField("kubeconfig", &s.Kubeconfig),
		{Name: "context", Read: func(v strict.Value) { contextAt, s.Context = &v, text(v) }},
		{Name: "namespaces", Read: func(v strict.Value) { s.Namespaces = readNamespaces(v) }},
		{Name: "selector", Read: func(v strict.Value) { s.Selector = readSelector(v) }},
		boolField("policies", &s.Policies),
		{Name: "regions", Read: func(v strict.Value) { s.Regions = readZoneRegions(v) }},
		{Name: "default_locality", Read: func(v strict.Value) { s.DefaultLocality, _ = readLocality(v) }},
		{Name: "services", Read: func(v strict.Value) { s.Services, services = readKubernetesServices(v, d) }},
		{Name: "namespace", Elsewhere: "write `namespaces: [NAME]`"},
		{Name: "server", Elsewhere: "the file that `kubeconfig` names has the server"},
		{Name: "empty_hold", Elsewhere: "it belongs to xds and dns: a Kubernetes cluster says itself which endpoints are ready"},
	})
	if contextAt != nil && s.Kubeconfig == "" {
		contextAt.Errorf("add kubeconfig, or remove context", "context belongs to kubeconfig")
	}
	for _, n := range services {
		if len(s.Namespaces) > 0 && !slices.Contains(s.Namespaces, namespaceOf(n.name)) {
			n.at.Errorf("add the namespace, or remove the service", "%q is not of the namespaces %s", n.name, strings.Join(s.Namespaces, ", "))
		}
	}
	*names = append(*names, services...)
	return s
}

// dnsLabel is the name of a namespace or of a Service.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func readNamespaces(v strict.Value) []string {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("leave it out for all namespaces", "is empty")
	}
	if len(items) > maxNamespaces {
		v.Errorf("leave it out for all namespaces, and choose by `selector`", "%d namespaces, want at most %d", len(items), maxNamespaces)
		return nil
	}
	var out []string
	for _, item := range items {
		name, ok := item.Text()
		switch {
		case !ok:
		case !dnsLabel.MatchString(name):
			item.Errorf("write the name of the namespace, as kubectl get namespaces shows it", "%q is not the name of a namespace", name)
		case slices.Contains(out, name):
			item.Errorf("keep one of them", "%s is given twice", name)
		default:
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// readSelector returns the selector in the spelling that it has everywhere here.
func readSelector(v strict.Value) string {
	s, ok := v.Text()
	if !ok {
		return ""
	}
	parsed, err := labels.Parse(s)
	if err != nil {
		v.Errorf("write it as for kubectl get services -l, for example app=checkout,tier!=test", "%q is not a label selector: %v", s, err)
		return ""
	}
	return parsed.String()
}

func readZoneRegions(v strict.Value) map[string]string {
	entries, _ := v.Entries()
	if len(entries) > maxZones {
		v.Errorf("label the Nodes with topology.kubernetes.io/region", "%d zones, want at most %d", len(entries), maxZones)
		return nil
	}
	out := map[string]string{}
	for _, e := range entries {
		region, ok := e.Value.Text()
		if !ok {
			continue
		}
		if _, err := isobar.ParseLocality(region + "/" + e.Name); err != nil || strings.Contains(region+e.Name, "/") {
			e.Value.Errorf("write the zone and its region, for example us-east1-b: us-east1", "%q of zone %q is not a region", region, e.Name)
			continue
		}
		out[e.Name] = region
	}
	return out
}

// readKubernetesServices reads services as those of the file, but that their
// endpoints come from the cluster. It returns where their names stand.
func readKubernetesServices(v strict.Value, d Defaults) (out []isobar.Service, names []placedName) {
	items, _ := v.List()
	lines := map[string]int{}
	for _, item := range items {
		r := serviceReader{defaults: d, listed: &listedReader{provider: kubernetesProvider}}
		s := r.service(item)
		if s.Name == "" {
			continue // told already
		}
		if !isKubernetesName(s.Name) {
			r.nameAt.Errorf(kubernetesNameHint, "%q is not the name of a port of a Service", s.Name)
			continue
		}
		if line, twice := lines[s.Name]; twice {
			r.nameAt.Errorf("rename one", "service %s is given twice, first in line %d", s.Name, line)
			continue
		}
		lines[s.Name] = r.nameAt.Pos().Line
		names = append(names, placedName{s.Name, r.nameAt})
		out = append(out, s)
	}
	return out, names
}

// isKubernetesName reports whether a name is SERVICE.NAMESPACE:PORT.
func isKubernetesName(name string) bool {
	rest, port, _ := strings.Cut(name, ":")
	service, namespace, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number > 0 && strconv.FormatUint(number, 10) == port && dnsLabel.MatchString(service) && dnsLabel.MatchString(namespace)
}

// namespaceOf returns that of a name for which isKubernetesName holds.
func namespaceOf(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	namespace, _, _ := strings.Cut(rest, ":")
	return namespace
}
