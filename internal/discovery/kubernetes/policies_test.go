package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/apitest"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func withPolicies(c *kubernetes.Config) {
	c.Policies, c.Selector = true, "balance=true"
}

// mode returns that of a service; "" = it is not served.
func (w *world) mode(name string) string {
	o, err := w.registry.Get(name)
	if err != nil {
		return ""
	}
	return o.Service.Mode.String()
}

// condition waits until the status of a policy has a condition whose reason and message
// are like this.
func (w *world) condition(policy, kind string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	var last []metav1.Condition
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the last conditions of %s: %+v", policy, last)
		}
	}()
	testhelp.Eventually(w.t, fmt.Sprintf("%s: %s %s %s", policy, kind, status, reason), func() bool {
		p := w.api.Policy("shop", policy)
		for _, a := range p.Status.Ancestors {
			last = a.Conditions
			for _, c := range a.Conditions {
				if c.Type == kind && c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) && c.ObservedGeneration == p.Generation {
					return true
				}
			}
		}
		return false
	})
}

// TestPolicy: a policy selects a Service, its settings are in force, its status says so,
// and everything ends with the policy.
func TestPolicy(t *testing.T) {
	w := newWorld(t, withPolicies)
	w.api.Put(apitest.Policy("shop", "p", "checkout:grpc", 1, func(s *v1alpha1.LoadBalancingPolicySpec) {
		s.Capacity = &v1alpha1.Capacity{
			MaxRatePerEndpoint: new(int32(100)), ConcurrencyPerEndpoint: new(int32(8)), Localities: []v1alpha1.LocalityCapacity{{Zone: "b", MaxRate: 900}},
		}
		s.HealthCheck = &v1alpha1.HealthCheck{GRPC: &v1alpha1.GRPCCheck{Service: "ready"}, Interval: "2s"}
		s.Failover = &v1alpha1.Failover{Threshold: 60}
	}), service("shop", "cart"), slice("shop", "cart-1", "a", "10.1.0.7"), slice("shop", "checkout-2", "b", "10.1.0.3"))
	w.run(func() {
		testhelp.Eventually(t, "checkout is served", func() bool { return w.mode("checkout.shop:80") == "full" })
		o, err := w.registry.Get("checkout.shop:80")
		if err != nil {
			t.Fatal(err)
		}
		s := o.Service
		a, b := s.Localities[0], s.Localities[1]
		if a.MaxRate != 0 || a.Endpoints[0].MaxRate != 100 || a.Endpoints[1].Concurrency != 8 || b.MaxRate != 900 || b.Endpoints[0].MaxRate != 0 || b.Endpoints[0].Concurrency != 8 {
			t.Errorf("capacities %+v", s.Localities)
		}
		if s.FailoverThreshold != 0.6 || len(s.HealthChecks) != 1 || s.HealthChecks[0].GRPC.Service != "ready" || s.Checkers.Count != isobar.DefaultCheckerCount {
			t.Errorf("settings %+v", s)
		}
		w.condition("p", "Programmed", "True", "Programmed", "clients of checkout.shop:80 are balanced")
		w.condition("p", "Accepted", "True", "Accepted", "")
		if w.mode("cart.shop:80") != "" {
			t.Error("a Service without label and policy is served")
		}
		old := w.api.Policy("shop", "p").DeepCopy()
		old.Spec.Mode, old.Generation = v1alpha1.Observe, 2
		w.api.Put(old)
		testhelp.Eventually(t, "the mode changes", func() bool { return w.mode("checkout.shop:80") == "observe" })
		w.condition("p", "Programmed", "True", "Programmed", "")
		w.api.Remove(old)
		testhelp.Eventually(t, "checkout is not served any more", func() bool { return w.mode("checkout.shop:80") == "" })
	})
}

// TestPolicyMistakes: each mistake is told in the status, with what to do.
func TestPolicyMistakes(t *testing.T) {
	w := newWorld(t, func(c *kubernetes.Config) {
		withPolicies(c)
		c.Services = map[string]isobar.Service{"cart.shop:80": {Name: "cart.shop:80", Mode: isobar.ModeObserve}}
	})
	w.api.Put(service("shop", "cart"), slice("shop", "cart-1", "a", "10.1.0.7"), service("shop", "lost"), slice("shop", "lost-1", "nowhere", "10.1.0.8"), service("shop", "idle"),
		apitest.Policy("shop", "old", "checkout", 9), apitest.Policy("shop", "young", "checkout", 1, func(s *v1alpha1.LoadBalancingPolicySpec) { s.Mode = v1alpha1.Auto }),
		apitest.Policy("shop", "port", "checkout:grpcc", 1), apitest.Policy("shop", "absent", "chekout", 1),
		apitest.Policy("shop", "file", "cart", 1), apitest.Policy("shop", "lost", "lost", 1), apitest.Policy("shop", "idle", "idle", 1))
	w.run(func() {
		w.condition("old", "Programmed", "True", "Programmed", "")
		w.condition("young", "Accepted", "False", "Conflicted", "policy old is older and has the same target: delete one of the two")
		w.condition("young", "Programmed", "False", "Conflicted", "see the condition Accepted")
		w.condition("port", "ResolvedRefs", "False", "PortNotFound", "no TCP port with the name grpcc: write one of grpc as sectionName")
		w.condition("absent", "ResolvedRefs", "False", "TargetNotFound", "namespace shop has no Service chekout")
		w.condition("file", "Accepted", "False", "Conflicted", "remove it from discovery.kubernetes.services")
		w.condition("lost", "Programmed", "False", "EndpointsLeftOut", "whose region is not known: label Node")
		w.condition("idle", "Programmed", "False", "NoEndpoints", "no endpoint of idle.shop:80 is ready")
		if got := w.mode("checkout.shop:80"); got != "full" {
			t.Errorf("the mode is %q, want that of the older policy", got)
		}
		st, _ := w.provider.Status()
		if len(st.Policies) != 7 || !strings.Contains(fmt.Sprint(st.Policies), "grpcc") {
			t.Errorf("state %+v", st.Policies)
		}
		w.api.Remove(w.api.Policy("shop", "old"))
		testhelp.Eventually(t, "the younger policy is in force", func() bool { return w.mode("checkout.shop:80") == "auto" })
		w.condition("young", "Accepted", "True", "Accepted", "")
		// A policy for the port precedes one for the Service.
		w.api.Put(apitest.Policy("shop", "port", "checkout:grpc", 0, func(s *v1alpha1.LoadBalancingPolicySpec) { s.Mode = v1alpha1.Bounded }))
		testhelp.Eventually(t, "the policy of the port is in force", func() bool { return w.mode("checkout.shop:80") == "bounded" })
		w.condition("young", "Programmed", "False", "Conflicted", "each port of Service checkout has a policy of its own")
	})
}

// TestPolicyPermissions: without the permission to read policies nothing is changed, and
// without that to write statuses they are in force; both are told by the missing rule.
// Other controllers' entries stay. The settings survive a restart.
func TestPolicyPermissions(t *testing.T) {
	w := newWorld(t, withPolicies)
	p := apitest.Policy("shop", "p", "checkout", 1)
	other := v1alpha1.AncestorStatus{AncestorRef: v1alpha1.TargetRef{Kind: "Service", Name: "checkout"}, ControllerName: "example.org/other"}
	p.Status.Ancestors = []v1alpha1.AncestorStatus{other}
	w.api.Put(p)
	w.api.Forbid(v1alpha1.Policies+"/status", true)
	w.run(func() {
		testhelp.Eventually(t, "checkout is served", func() bool { return w.mode("checkout.shop:80") == "full" })
		testhelp.Eventually(t, "the missing permission is named", func() bool {
			st, _ := w.provider.Status()
			return strings.Contains(st.StatusFailure, "give the service account patch of loadbalancingpolicies/status.isobar.dev")
		})
		w.api.Forbid(v1alpha1.Policies+"/status", false)
		w.condition("p", "Programmed", "True", "Programmed", "")
		if got := w.api.Policy("shop", "p").Status.Ancestors; len(got) != 2 || got[0].ControllerName != other.ControllerName {
			t.Errorf("ancestors %+v", got)
		}
		writes := w.api.Count("patch p")
		w.api.Put(slice("shop", "checkout-1", "a", "10.1.0.1"))
		testhelp.Eventually(t, "one endpoint", func() bool { return strings.HasSuffix(w.inForce(), "a: 10.1.0.1") })
		if due := w.provider.DueStatuses(); due != 0 {
			t.Errorf("%d statuses have to be written", due)
		}
		if st, _ := w.provider.Status(); st.StatusFailure != "" || w.api.Count("patch p") != writes {
			t.Errorf("%d writes where nothing changed, %s", w.api.Count("patch p")-writes, st.StatusFailure)
		}
	})
	w.api.Forbid(v1alpha1.Policies, true)
	w.run(func() {
		testhelp.Eventually(t, "the missing permission is named", func() bool {
			st, _ := w.provider.Status()
			return strings.Contains(st.Failure, "give the service account list and watch of loadbalancingpolicies.isobar.dev, by a ClusterRole")
		})
		if got := w.mode("checkout.shop:80"); got != "full" {
			t.Errorf("the mode after a restart is %q", got)
		}
	})
}
