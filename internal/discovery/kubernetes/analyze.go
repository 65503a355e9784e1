package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
	"github.com/isobar-xds/isobar/internal/plural"
)

// Finding is something of a cluster that does not fit Isobar.
type Finding struct {
	Object  string `json:"object"`  // KIND NAMESPACE/NAME
	Message string `json:"message"` // what is wrong, and what to do
	Warning bool   `json:"warning,omitempty"`
}

// Analysis collects objects, from files or from a cluster, in any order; Findings says
// what does not fit.
type Analysis struct {
	cfg            *Config
	serviceAccount string // NAMESPACE/NAME
	selector       labels.Selector

	table     *table.Table
	services  int
	nodes     []table.Node
	policies  int
	workloads []workload
	rbac      rbac
}

// NewAnalysis begins one. serviceAccount is that of Isobar, NAMESPACE/NAME.
func NewAnalysis(cfg *Config, serviceAccount string) (*Analysis, error) {
	selector, err := labels.Parse(cfg.Selector)
	if err != nil {
		return nil, err
	}
	return &Analysis{cfg: cfg, serviceAccount: serviceAccount, selector: selector, table: table.New(cfg.Places)}, nil
}

// kindOf is what every object has.
type kindOf struct {
	Kind     string            `json:"kind"`
	Items    []json.RawMessage `json:"items"`
	Metadata metav1.ObjectMeta `json:"metadata"`
}

// Add takes an object or a list of objects, in JSON. Kinds that Isobar has nothing to do
// with are left out. Errors name the object.
func (a *Analysis) Add(data []byte) error {
	var head kindOf
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("not an object of Kubernetes: %w", err)
	}
	if list, is := strings.CutSuffix(head.Kind, "List"); is {
		for _, item := range head.Items {
			if err := a.add(cmp.Or(kind(item), list), item); err != nil {
				return err
			}
		}
		return nil
	}
	return a.add(head.Kind, data)
}

// kind returns the kind of an object; items of lists have none.
func kind(data []byte) string {
	var head struct {
		Kind string `json:"kind"`
	}
	_ = json.Unmarshal(data, &head) // add reports what it can't read
	return head.Kind
}

func (a *Analysis) add(kind string, data []byte) error {
	var err error
	switch kind {
	case "Service":
		err = read(data, func(o *corev1.Service) { a.addService(o) })
	case "EndpointSlice":
		err = read(data, func(o *discoveryv1.EndpointSlice) {
			if s, ok := sliceOf(o); ok {
				a.table.SetSlice(s)
			}
		})
	case "Node":
		err = read(data, func(o *metav1.PartialObjectMetadata) {
			n, _ := nodeOf(o)
			a.nodes = append(a.nodes, n)
			a.table.SetNode(n)
		})
	case "LoadBalancingPolicy":
		err = read(data, func(o *v1alpha1.LoadBalancingPolicy) {
			a.policies++
			if p, ok := policyOf(o); ok {
				a.table.SetPolicy(p)
			}
		})
	case "Pod", "Deployment", "StatefulSet", "DaemonSet":
		err = read(data, func(o *workload) {
			o.Kind = kind
			a.workloads = append(a.workloads, *o)
		})
	case "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
		err = read(data, func(o *rbacObject) { a.rbac.add(kind, o) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

func read[T any](data []byte, use func(*T)) error {
	o := new(T)
	if err := json.Unmarshal(data, o); err != nil {
		return err
	}
	use(o)
	return nil
}

func (a *Analysis) addService(o *corev1.Service) {
	a.services++
	if s, ok := serviceOf(a.selector)(o); ok {
		a.table.SetService(s)
	}
}

// Findings lists what does not fit, sorted by object.
func (a *Analysis) Findings() []Finding {
	listed, _ := a.table.Take(time.Time{})
	out := slices.Concat(a.servicesFound(listed), a.nodesFound(), a.policiesFound(), a.clientsFound(), a.rbac.found(a.cfg, a.serviceAccount))
	slices.SortStableFunc(out, func(x, y Finding) int { return strings.Compare(x.Object, y.Object) })
	return slices.Compact(out)
}

// servicesFound names endpoints that can't be used, and settings for what is not there.
func (a *Analysis) servicesFound(listed []table.Listed) (out []Finding) {
	is := map[string]bool{}
	for i := range listed {
		l := &listed[i]
		is[l.Name] = true
		if l.Counts.LeftOut > 0 {
			which := plural.Count(l.Counts.LeftOut, "endpoint is", "endpoints are")
			out = append(out, Finding{Object: "Service " + l.Name, Message: which + " left out: " + l.Reason})
		}
	}
	if a.services == 0 {
		return out // files without Services
	}
	for name := range a.cfg.Services {
		if !is[name] {
			out = append(out, Finding{Object: "Service " + name, Message: "the configuration has settings for it, and there is no such Service " +
				"with this port, or its labels do not fit the selector: correct its name under discovery.kubernetes.services, which is SERVICE.NAMESPACE:PORT"})
		}
	}
	return out
}

// nodesFound names Nodes without a region or a zone.
func (a *Analysis) nodesFound() (out []Finding) {
	if !a.cfg.Places.Default.IsZero() {
		return nil
	}
	for _, n := range a.nodes {
		switch {
		case n.Zone == "":
			out = append(out, Finding{Object: "Node " + n.Name, Message: "it has no zone, so endpoints on it are left out: label it with " +
				corev1.LabelTopologyZone + ", or set default_locality"})
		case n.Region == "" && a.cfg.Places.Regions[n.Zone] == "":
			out = append(out, Finding{Object: "Node " + n.Name, Message: "it has no region: label it with " +
				corev1.LabelTopologyRegion + ", or add zone " + n.Zone + " to regions"})
		}
	}
	return out
}

// policiesFound names what a status would say.
func (a *Analysis) policiesFound() (out []Finding) {
	if a.policies > 0 && !a.cfg.Policies {
		out = append(out, Finding{Object: "configuration", Message: "there are LoadBalancingPolicies, and Isobar does not read them: " +
			"set policies: true under discovery.kubernetes"})
	}
	owned := func(name string) bool { _, is := a.cfg.Services[name]; return is }
	verdicts := a.table.Verdicts()
	for i := range verdicts {
		if !verdicts[i].Exists && a.services == 0 {
			continue // files without Services
		}
		conditions := conditionsOf(&verdicts[i], owned, func([]string) (reason, message string) { return "", "" })
		for _, c := range conditions {
			if c.Status == metav1.ConditionFalse && (c.Type != v1alpha1.Programmed || len(verdicts[i].Services) == 0 && conditionsHold(conditions)) {
				out = append(out, Finding{Object: "LoadBalancingPolicy " + verdicts[i].Policy.String(), Message: c.Message})
			}
		}
	}
	return out
}

// conditionsHold reports whether the target of a policy exists and no other one has it.
func conditionsHold(conditions []metav1.Condition) bool {
	return !slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type != v1alpha1.Programmed && c.Status == metav1.ConditionFalse
	})
}

// analysed are the resources that an analysis reads, with their paths.
var analysed = []struct {
	group, resource string
	namespaced      bool
}{
	{"/api/v1", "services", true}, {"/api/v1", "nodes", false}, {"/apis/discovery.k8s.io/v1", "endpointslices", true},
	{"/apis/isobar.dev/v1alpha1", "loadbalancingpolicies", true},
	{"/apis/apps/v1", "deployments", true}, {"/apis/apps/v1", "statefulsets", true}, {"/apis/apps/v1", "daemonsets", true},
	{"/apis/rbac.authorization.k8s.io/v1", "clusterroles", false}, {"/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", false},
	{"/apis/rbac.authorization.k8s.io/v1", "roles", true}, {"/apis/rbac.authorization.k8s.io/v1", "rolebindings", true},
}

// ReadCluster adds the objects of a cluster, with the caller's credentials. It
// names what may not be read, of which the findings then say nothing.
func (a *Analysis) ReadCluster(ctx context.Context) (unread []Finding, err error) {
	c, err := connect(&a.cfg.Cluster)
	if err != nil {
		return nil, err
	}
	namespaces := a.cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, r := range analysed {
		where := namespaces
		if !r.namespaced {
			where = []string{""}
		} else if a.cfg.Lease != "" && strings.HasPrefix(r.resource, "role") && where[0] != "" {
			own, _, _ := strings.Cut(a.serviceAccount, "/")
			where = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(where), own))))
		}
		for _, namespace := range where {
			path := r.group
			if namespace != "" {
				path += "/namespaces/" + namespace
			}
			data, err := c.parts[corev1.SchemeGroupVersion].Get().AbsPath(path, r.resource).SetHeader("Accept", "application/json").Do(ctx).Raw()
			switch {
			case apierrors.IsNotFound(err) && r.resource == "loadbalancingpolicies":
				unread = append(unread, Finding{
					Object: "cluster", Message: "it does not have the custom resource LoadBalancingPolicy: apply deploy/kubernetes/crds",
					Warning: !a.cfg.Policies,
				})
				continue
			case apierrors.IsForbidden(err):
				unread = append(unread, Finding{
					Object: "cluster", Message: fmt.Sprintf("not analyzed: your credentials may not list %s: %v", r.resource, err), Warning: true,
				})
				continue
			case err != nil:
				return nil, fmt.Errorf("list %s: %w", r.resource, err)
			}
			if err := a.Add(data); err != nil {
				return nil, err
			}
		}
	}
	return slices.Clip(unread), nil
}

// rbac is the roles and bindings of a cluster or of files.
type rbac struct {
	roles    map[string][]rbacRule // by kind, namespace and name
	bindings []rbacObject
}

// rbacObject is what counts of roles and bindings.
type rbacObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Rules    []rbacRule        `json:"rules"`
	RoleRef  struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"roleRef"` //nolint:tagliatelle // as Kubernetes calls it
	Subjects []struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"subjects"`
}

type rbacRule struct {
	Groups    []string `json:"apiGroups"` //nolint:tagliatelle // as Kubernetes calls it
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
	Names     []string `json:"resourceNames"` //nolint:tagliatelle // as Kubernetes calls it
}

func roleKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func (r *rbac) add(kind string, o *rbacObject) {
	if strings.HasSuffix(kind, "Binding") {
		r.bindings = append(r.bindings, *o)
		return
	}
	if r.roles == nil {
		r.roles = map[string][]rbacRule{}
	}
	r.roles[roleKey(kind, o.Metadata.Namespace, o.Metadata.Name)] = o.Rules
}

// found names the permissions that the service account lacks. Without any role nothing
// is known of permissions.
func (r *rbac) found(cfg *Config, serviceAccount string) (out []Finding) {
	if len(r.roles) == 0 {
		return nil
	}
	namespaces := cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, p := range Permissions(cfg.Policies) {
		where := namespaces
		if p.Resource == "nodes" {
			where = []string{""}
		}
		for _, namespace := range where {
			out = append(out, r.lack(serviceAccount, namespace, &p)...)
		}
	}
	if cfg.Lease != "" {
		own, _, _ := strings.Cut(serviceAccount, "/")
		for _, p := range leasePermissions(cfg.Lease) {
			out = append(out, r.lack(serviceAccount, own, &p)...)
		}
	}
	return out
}

// lack names what of a permission is missing in a namespace.
func (r *rbac) lack(serviceAccount, namespace string, p *Permission) (out []Finding) {
	for _, verb := range p.Verbs {
		if !r.allows(serviceAccount, namespace, p, verb) {
			out = append(out, lacking(p, verb, namespace, serviceAccount))
		}
	}
	return out
}

func lacking(p *Permission, verb, namespace, serviceAccount string) Finding {
	role, of := "a ClusterRole", ""
	if namespace != "" {
		role, of = "a Role in namespace "+namespace, " in namespace "+namespace
	}
	return Finding{
		Object:  "ServiceAccount " + serviceAccount,
		Message: fmt.Sprintf("it may not %s %s%s: add {apiGroups: [%q], resources: [%s], verbs: [%s]} to %s", verb, p.Resource, of, p.Group, p.Resource, verb, role),
		Warning: p.Optional,
	}
}

// allows reports whether a service account may use a resource in a namespace; empty = in
// all namespaces, and for what belongs to none.
func (r *rbac) allows(serviceAccount, namespace string, p *Permission, verb string) bool {
	owner, name, _ := strings.Cut(serviceAccount, "/")
	for i := range r.bindings {
		b := &r.bindings[i]
		if b.Metadata.Namespace != "" && b.Metadata.Namespace != namespace {
			continue
		}
		bound := false
		for _, s := range b.Subjects {
			bound = bound || s.Kind == "ServiceAccount" && s.Name == name && s.Namespace == owner ||
				s.Kind == "Group" && (s.Name == "system:serviceaccounts" || s.Name == "system:serviceaccounts:"+owner || s.Name == "system:authenticated")
		}
		in := b.Metadata.Namespace
		if b.RoleRef.Kind == "ClusterRole" {
			in = ""
		}
		if bound && slices.ContainsFunc(r.roles[roleKey(b.RoleRef.Kind, in, b.RoleRef.Name)], func(rule rbacRule) bool { return rule.allows(p, verb) }) {
			return true
		}
	}
	return false
}

func (r *rbacRule) allows(p *Permission, verb string) bool {
	has := func(list []string, want string) bool {
		return slices.Contains(list, want) || slices.Contains(list, "*")
	}
	named := len(r.Names) == 0 || p.Name != "" && slices.Contains(r.Names, p.Name)
	return named && has(r.Groups, p.Group) && has(r.Resources, p.Resource) && has(r.Verbs, verb)
}
