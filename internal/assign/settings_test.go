package assign_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
)

// obeyed checks that every assignment carries the settings of its service, and
// that a source which comes between two plans gets them, too.
func obeyed(t *rapid.T, s isobar.AssignmentSettings, out *assign.Result) {
	least := max(s.OverprovisioningFactor, isobar.MinOverprovisioningFactor)
	stranger := isobar.MustLocality("elsewhere/a")
	distance := make([]float64, len(out.Sites))
	all := []*isobar.Assignment{assign.ForNewSource(out, nil, assign.Source{Locality: stranger, Distance: distance})}
	for i := range out.Sources {
		all = append(all, out.Sources[i].Assignment)
	}
	for _, a := range all {
		if a.EndpointStaleAfter != s.EndpointStaleAfter || a.ResourceTTL != s.ResourceTTL || a.OverprovisioningFactor < least {
			t.Fatalf("%+v has not the settings %+v", a, s)
		}
		if a.WeightedPriorityHealth && !s.WeightedPriorityHealth {
			t.Fatalf("%+v counts weights without being asked to", a)
		}
	}
}

func TestSettingsOfAssignments(t *testing.T) {
	up, down := isobar.Healthy, isobar.Unhealthy
	tests := []struct {
		name    string
		set     isobar.AssignmentSettings
		health  []isobar.HealthStatus
		weights []uint32
		factor  uint32
		counts  bool // by weight
	}{
		{"nothing set", isobar.AssignmentSettings{}, nil, nil, 140, false},
		{"as configured", isobar.AssignmentSettings{OverprovisioningFactor: 200}, nil, nil, 200, false},
		{"below the default", isobar.AssignmentSettings{OverprovisioningFactor: 100}, nil, nil, 100, false},
		{"raised as one of three is down", isobar.AssignmentSettings{OverprovisioningFactor: 100}, []isobar.HealthStatus{up, up, down}, nil, 150, false},
		{"the configured one does already", isobar.AssignmentSettings{OverprovisioningFactor: 200}, []isobar.HealthStatus{up, up, down}, nil, 200, false},
		{"one of two drains", isobar.AssignmentSettings{}, []isobar.HealthStatus{up, isobar.Draining}, nil, 140, false},
		{
			"one of three drains and one is down", isobar.AssignmentSettings{},
			[]isobar.HealthStatus{up, isobar.Draining, down}, nil, 200, false,
		},
		{
			"what drains has no weight", isobar.AssignmentSettings{WeightedPriorityHealth: true},
			[]isobar.HealthStatus{up, up, isobar.Draining}, []uint32{1, 1, 8}, 140, true,
		},
		{
			"raised by weight", isobar.AssignmentSettings{WeightedPriorityHealth: true},
			[]isobar.HealthStatus{up, up, down}, []uint32{1, 1, 8}, 500, true,
		},
		{
			"beyond what can be expressed", isobar.AssignmentSettings{WeightedPriorityHealth: true},
			[]isobar.HealthStatus{up, down}, []uint32{1, 1 << 31}, 200, false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := input([]assign.Site{site(east, 1000, tt.health...)}, source(east, 100, []float64{0}, 1))
			for i, w := range tt.weights {
				in.Sites[0].Group.Endpoints[i].Weight = w
			}
			in.Service.Assignment = tt.set
			a := decide(t, in).Sources[0].Assignment
			if a.OverprovisioningFactor != tt.factor || a.WeightedPriorityHealth != tt.counts {
				t.Errorf("factor %d, by weight %v; want %d, %v", a.OverprovisioningFactor, a.WeightedPriorityHealth, tt.factor, tt.counts)
			}
			for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
				if got := realised(a, kind, east); got < 99.999 {
					t.Errorf("%s sends %v%%", kind, got)
				}
			}
		})
	}
}

// A change of settings is published at once; without one the assignment stays
// the same pointer, so that nothing is pushed.
func TestChangedSettingsArePublished(t *testing.T) {
	in := input(twoSites(), source(east, 800, []float64{0, 80}, 0.6, 0.4))
	out := decide(t, in)
	for _, s := range []isobar.AssignmentSettings{
		{EndpointStaleAfter: time.Minute}, {ResourceTTL: time.Minute}, {OverprovisioningFactor: 150}, {WeightedPriorityHealth: true}, {},
	} {
		for _, trigger := range []assign.Trigger{assign.Reapply, assign.Tick} {
			before := out.Sources[0].Assignment
			changed := out.Settings != s
			svc := *in.Service
			svc.Assignment = s
			in.Service, in.Trigger = &svc, trigger
			out = decide(t, then(in, out))
			if got := out.Sources[0].Assignment; (got != before) != changed {
				t.Errorf("%+v: a new assignment is %v, want %v", s, got != before, changed)
			}
			wantShares(t, out, 0, 60, 40)
		}
	}
}
