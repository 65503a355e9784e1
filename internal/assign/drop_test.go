package assign_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

func TestDrops(t *testing.T) {
	in := input([]assign.Site{site(east, 1000)}, source(east, 1000, []float64{0}, 1))
	in.Service.MaxShed = 0.3
	var out *assign.Result
	for tick, row := range []struct{ shed, want float64 }{
		{0, 0},
		{0.2, 0.2},         // up at once
		{0.200_05, 0.2},    // too little to push
		{0.2034, 0.2034},   // 1/10,000 is what the wire can tell
		{0.203_45, 0.2034}, // and again too little
		{0.25, 0.25},       // more
		{0.02, 0.125},      // down by half a tick
		{0.1, 0.1},         // but not below what is needed
		{0, 0.025},         // down faster where all fits
		{0, 0.0063},
		{0, 0}, // and then off
		{0.9, 0.3},
	} {
		in.Shed = row.shed
		out = decide(t, then(in, out))
		if math.Abs(out.Drop-row.want) > 1e-12 || out.Sources[0].Assignment.Drop != out.Drop {
			t.Errorf("tick %d, shed %v: drop %v, want %v", tick, row.shed, out.Drop, row.want)
		}
		if got := out.Load[0]; math.Abs(got-1000*(1-out.Drop)) > 1e-6 {
			t.Errorf("tick %d: load %v with a drop of %v", tick, got, out.Drop)
		}
		if out.Drop > 0 {
			wantReason(t, out, 0, assign.ReasonShed)
		}
	}
	in.Service.Mode, in.Shed = isobar.ModeObserve, 0.9
	if got := decide(t, then(in, out)).Drop; got != 0.075 {
		t.Errorf("mode observe: %v, want 0.075: it only ends what there was", got)
	}
	in.Service.Mode = isobar.ModeFull
	// Without a decision the drop stays, but an operator can end it.
	in.Trigger = assign.Reapply
	in.Shed = 0
	if got := decide(t, then(in, out)).Drop; got != 0.3 {
		t.Errorf("after a reapplication %v, want 0.3", got)
	}
	in.Service.MaxShed = 0
	if got := decide(t, then(in, out)).Drop; got != 0 {
		t.Errorf("without leave to shed %v, want 0", got)
	}
}

// A drop ends at once where the demand, which counts dropped requests, is well
// below what the localities may carry.
func TestDropEndsAtOnce(t *testing.T) {
	for _, row := range []struct{ demand, want float64 }{{2000, 0.67}, {800, 0.1675}, {681, 0.1675}, {679, 0}, {0, 0}} {
		in := input([]assign.Site{site(east, 1000)}, source(east, 2000, []float64{0}, 1))
		in.Service.MaxShed, in.Shed = 0.8, 0.67
		before := decide(t, in)
		in.Sources[0].Demand = row.demand
		if row.demand < 2000 {
			in.Shed = 0
		}
		if got := decide(t, then(in, before)).Drop; math.Abs(got-row.want) > 1e-12 {
			t.Errorf("demand %v: drop %v, want %v", row.demand, got, row.want)
		}
	}
}

// Large drops are planned as they can be told: in whole percents, within what
// the operator allows.
func TestLargeDropsAreWholePercents(t *testing.T) {
	tests := []struct{ shed, most, want float64 }{
		{0.123456, 1, 0.1235}, {0.4294, 1, 0.4294}, {0.4295, 1, 0.43}, {0.501, 1, 0.51}, {0.501, 0.505, 0.5}, {0.9, 0.4299, 0.4294}, {0.9, 0.4, 0.4},
	}
	for _, tt := range tests {
		in := input([]assign.Site{site(east, 1000)}, source(east, 1000, []float64{0}, 1))
		in.Service.MaxShed, in.Shed = tt.most, tt.shed
		if got := assign.Assign(in).Drop; math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("shed %v of at most %v: %v, want %v", tt.shed, tt.most, got, tt.want)
		}
	}
}

// batch, of which half may be dropped, and web, of which a tenth may be.
func batchAndWeb() *isobar.Criticality {
	return &isobar.Criticality{
		Clients: []isobar.ClientClass{{Client: "batch-*", Class: isobar.ClassSheddable}},
		MaxShed: isobar.ClassFractions{0, 0.1, 0.1, 0.5},
	}
}

// Those that matter least are shed first, evenly over the sources, up to their
// limit; then those that matter more. What is shed in all is as without classes.
func TestClassesAreShedInOrder(t *testing.T) {
	in := input([]assign.Site{site(east, 800), site(west, 600)}, source(east, 600, []float64{0, 1}, 1, 0), source(west, 400, []float64{1, 0}, 0, 1))
	in.Service.MaxShed, in.Service.Criticality = 0.4, batchAndWeb()
	in.Sources[0].Mix = assign.Mix{isobar.ClassCritical: 0.5, isobar.ClassSheddable: 0.5}   // 300 of 600
	in.Sources[1].Mix = assign.Mix{isobar.ClassCritical: 0.75, isobar.ClassSheddable: 0.25} // 100 of 400
	var out *assign.Result
	for tick, row := range []struct{ shed, batch, web, total float64 }{
		{0, 0, 0, 0},
		{0.1, 0.25, 0, 0.1}, // 100 of 400
		{0.2, 0.5, 0, 0.2},
		{0.23, 0.5, 0.05, 0.23}, // and 30 of 600
		{0.35, 0.5, 0.1, 0.26},  // no more is allowed
		{0, 0.1625, 0, 0.065},   // down to a quarter: web first
		{0, 0.0408, 0, 0.01632},
		{0, 0, 0, 0},
	} {
		in.Shed = row.shed
		out = decide(t, then(in, out))
		drops := out.Classes.Drops
		if math.Abs(drops[isobar.ClassSheddable]-row.batch) > 4e-4 || math.Abs(drops[isobar.ClassCritical]-row.web) > 4e-4 || math.Abs(out.Drop-row.total) > 4e-4 {
			t.Errorf("tick %d, shed %v: %v, %v in all; want %+v", tick, row.shed, drops, out.Drop, row)
		}
		for i, rate := range []float64{300*(1-drops[1]) + 300*(1-drops[3]), 300*(1-drops[1]) + 100*(1-drops[3])} {
			got := out.Load[i]
			if math.Abs(got-rate) > 1e-6 {
				t.Errorf("tick %d: %v requests/s are left of source %d, want %v", tick, got, i, rate)
			}
			a := out.Sources[i].Assignment
			if a.Drop != drops[isobar.ClassCritical] || a.Classes != out.Classes && !a.Classes.Equal(out.Classes) {
				t.Errorf("tick %d: source %d is told %v", tick, i, a.Classes)
			}
		}
		if row.total > 0 {
			wantReason(t, out, 0, assign.ReasonShed)
		}
		if row.web > 0 && !strings.Contains(reasonsOf(out), "of those of sheddable ones") {
			t.Errorf("tick %d: explained as %s", tick, reasonsOf(out))
		}
	}
}

func reasonsOf(r *assign.Result) string {
	var texts []string
	for i := range r.Sources {
		for _, x := range r.Sources[i].Reasons {
			texts = append(texts, x.Text)
		}
	}
	return strings.Join(texts, "; ")
}

// dumbDrops sheds crumb by crumb from whoever matters least and has some left.
func dumbDrops(shed float64, mix assign.Mix, limits isobar.ClassFractions) (drops isobar.ClassFractions) {
	const crumb = 1e-4
	for left := shed; left > crumb/2; left -= crumb {
		for c := isobar.Classes - 1; c >= 0; c-- {
			if mix[c] > 1e-9 && drops[c] < limits[c] {
				drops[c] = min(limits[c], drops[c]+crumb/mix[c])
				break
			}
		}
	}
	return drops
}

func TestClassesAgainstATwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := &isobar.Criticality{Clients: []isobar.ClientClass{{Client: "x", Class: isobar.ClassSheddable}}}
		limit := 1.0
		for c := isobar.Classes - 1; c >= 0; c-- {
			limit *= rapid.SampledFrom([]float64{0, 0.3, 0.7, 1, 1}).Draw(t, "limit")
			rules.MaxShed[c] = limit
		}
		in := input([]assign.Site{site(east, 1000), site(west, 800)}, source(east, 700, []float64{0, 1}, 1, 0), source(west, 900, []float64{1, 0}, 0, 1))
		in.Service.MaxShed, in.Service.Criticality = rapid.Float64Range(0, 0.99).Draw(t, "most"), rules
		var out *assign.Result
		for range 12 {
			mix := assign.Mix{}
			demand := 0.0
			for i := range in.Sources {
				s := &in.Sources[i]
				s.Demand, s.Mix = rapid.SampledFrom([]float64{0, 50, 700, 1500}).Draw(t, "demand"), assign.Mix{}
				total := 0.0
				for c := range s.Mix {
					s.Mix[c] = rapid.SampledFrom([]float64{0, 0, 1, 5}).Draw(t, "part")
					total += s.Mix[c]
				}
				if total == 0 {
					s.Mix, total = assign.Mix{isobar.ClassCritical: 1}, 1
				}
				demand += s.Demand
				for c := range s.Mix {
					s.Mix[c] /= total
					mix[c] += s.Demand * s.Mix[c]
				}
			}
			may := 0.0
			for c := range mix {
				mix[c] /= max(1e-9, demand)
				may += mix[c] * rules.MaxShed[c]
			}
			in.Shed = rapid.Float64Range(0, 1).Draw(t, "shed") * min(in.Service.MaxShed, may)
			in.Trigger = assign.Trigger(max(0, rapid.IntRange(-3, 1).Draw(t, "trigger")))
			before := out
			in.Previous = before
			out = assign.Assign(in)
			for _, v := range invariant.Check(before, out, invariant.CheckInput{Service: in.Service, Sources: in.Sources, Trigger: in.Trigger}) {
				if v.Rule == invariant.RuleDrop {
					t.Fatalf("%s: %s", v.Rule, v.Text)
				}
			}
			if in.Trigger == assign.Reapply && before != nil || demand == 0 {
				continue
			}
			// What is dropped in all is at least what has to be, and divided as the twin
			// does, but for the steps of the wire and what is not worth telling again.
			if out.Drop < in.Shed-0.011 {
				t.Errorf("%v is dropped, %v does not fit", out.Drop, in.Shed)
			}
			want := dumbDrops(out.Drop, mix, rules.MaxShed)
			for c, d := range out.Classes.Drops {
				if part := mix[c] * math.Abs(d-want[c]); part > 0.016 {
					t.Errorf("%s: drops %v, a twin %v, of %v at most; mix %v", isobar.Class(c), d, want[c], rules.MaxShed, mix)
				}
			}
		}
	})
}

func TestClassOf(t *testing.T) {
	c := &isobar.Criticality{Clients: []isobar.ClientClass{
		{Client: "*", Class: isobar.ClassSheddablePlus}, {Client: "batch-*", Class: isobar.ClassSheddable},
		{Client: "batch-payments", Class: isobar.ClassCriticalPlus}, {Client: "batch-p*", Class: isobar.ClassCritical},
	}}
	for client, want := range map[string]isobar.Class{
		"web": isobar.ClassSheddablePlus, "": isobar.ClassSheddablePlus, "batch-": isobar.ClassSheddable, "batch-x": isobar.ClassSheddable,
		"batch-payments": isobar.ClassCriticalPlus, "batch-payments2": isobar.ClassCritical, "batch": isobar.ClassSheddablePlus,
	} {
		if got := c.ClassOf(client); got != want {
			t.Errorf("%q is %s, want %s", client, got, want)
		}
	}
	if got := (*isobar.Criticality)(nil).ClassOf("web"); got != isobar.ClassCritical {
		t.Errorf("without classes: %s", got)
	}
}
