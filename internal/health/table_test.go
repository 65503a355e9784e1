package health_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

func TestTable(t *testing.T) {
	w := one(t)
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == first {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
	w.run(40 * 1e9)
	verdicts := w.table.Verdicts()
	over := func(h isobar.HealthStatus) *isobar.HealthStatus { return &h }
	for _, row := range []struct {
		name       string
		address    string
		override   *isobar.HealthStatus
		configured isobar.HealthStatus
		want       isobar.HealthStatus
	}{
		{"a verdict", first, nil, isobar.Unknown, isobar.Unhealthy},
		{"a verdict against the configuration", first, nil, isobar.Healthy, isobar.Unhealthy},
		{"an operator wins", first, over(isobar.Healthy), isobar.Unknown, isobar.Healthy},
		{"an operator drains", second, over(isobar.Draining), isobar.Unknown, isobar.Draining},
		{"an operator says unknown", first, over(isobar.Unknown), isobar.Unknown, isobar.Unknown},
		{"a good verdict", second, nil, isobar.Unknown, isobar.Healthy},
		{"configured as draining", second, nil, isobar.Draining, isobar.Draining},
		{"configured as unhealthy", second, nil, isobar.Unhealthy, isobar.Unhealthy},
		{"configured as degraded", second, nil, isobar.Degraded, isobar.Degraded},
		{"degraded and down", first, nil, isobar.Degraded, isobar.Unhealthy},
		{"without a verdict", "10.9.9.9:80", nil, isobar.Degraded, isobar.Degraded},
	} {
		t.Run(row.name, func(t *testing.T) {
			table := health.Table{}.WithVerdicts(verdicts)
			plain := table
			key := health.Key{Service: "web", Address: row.address}
			if row.override != nil {
				table = table.With(health.Override{Key: key, Status: *row.override})
			}
			e := isobar.Endpoint{Address: row.address, Health: row.configured}
			if got := table.Status("web", &e); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
			if table.Equal(plain) != (row.override == nil) {
				t.Error("Equal")
			}
			back := table.Without(func(k health.Key) bool { return k == key })
			if !back.Equal(plain) || back.Verdicts() != verdicts {
				t.Error("an override that is taken back leaves something")
			}
		})
	}
	twice := health.NewTable([]health.Override{
		{Key: health.Key{Service: "b", Address: "1"}, Status: isobar.Healthy},
		{Key: health.Key{Service: "a", Address: "1"}, Status: isobar.Healthy},
		{Key: health.Key{Service: "b", Address: "1"}, Status: isobar.Draining},
	}).Overrides()
	if len(twice) != 2 || twice[0].Service != "a" || twice[1].Status != isobar.Draining {
		t.Errorf("overrides %v", twice)
	}
}

func TestVerdictsAreAdoptedPerService(t *testing.T) {
	w := newWorld(t, topology(service("a", 1, zoneA), service("b", 1, zoneA), service("c", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(2 * interval)
	old := w.table.Verdicts()
	w.all(isobar.Timeout)
	w.step()
	w.topology = topology(service("a", 1, zoneA), service("b", 1, zoneA), service("d", 1, zoneA))
	w.run(20 * interval)
	newer := w.table.Verdicts()
	if got := old.Changed(newer); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("changed %v", got)
	}
	mixed := old.Adopt(newer, "b", "d", "nothing")
	for service, want := range map[string]isobar.HealthStatus{"a": isobar.Healthy, "b": isobar.Timeout, "c": isobar.Healthy, "d": isobar.Timeout} {
		if got, _ := mixed.Status(service, first); got != want {
			t.Errorf("%s: %s, want %s", service, got, want)
		}
	}
	if got := mixed.Changed(newer); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("left to adopt: %v", got)
	}
	var none *health.Verdicts
	if all := mixed.Adopt(newer, mixed.Changed(newer)...); all.Changed(newer) != nil || none.Changed(nil) != nil || len(none.Changed(newer)) != 3 || len(newer.Changed(none)) != 3 {
		t.Error("adopting everything leaves a difference")
	}
	if old.Adopt(old, "a") != old {
		t.Error("adopting what is the same makes a copy")
	}
}

func TestProtocols(t *testing.T) {
	p := health.ProtocolsOf(isobar.CheckRedis, isobar.CheckHTTP)
	text, err := json.Marshal(health.Checker{Protocols: p})
	if err != nil {
		t.Fatal(err)
	}
	var back health.Checker
	if err := json.Unmarshal(text, &back); err != nil || back.Protocols != p || p.String() != "http+redis" {
		t.Errorf("%s became %v, %v", text, back, err)
	}
	if p.Has(health.ProtocolsOf(isobar.CheckTCP)) || !p.Has(0) || len(p.List()) != 2 {
		t.Errorf("%v", p)
	}
	if err := p.UnmarshalText(nil); err != nil || p != 0 {
		t.Errorf("%v, %v", p, err)
	}
	if err := p.UnmarshalText([]byte("http+smtp")); err == nil {
		t.Error("smtp was read")
	}
}

// TestManyOverrides: adding all at once is adding one after the other.
func TestManyOverrides(t *testing.T) {
	var one health.Table
	var all []health.Override
	statuses := []isobar.HealthStatus{isobar.Draining, isobar.Healthy, isobar.Unhealthy}
	for i := range 30 {
		o := health.Override{Key: health.Key{Service: []string{"web", "api"}[i%2], Address: []string{first, second, "10.9.9.9:80"}[i*7%3]}, Status: statuses[i%len(statuses)]}
		one, all = one.With(o), append(all, o)
	}
	for split := range all {
		before := health.NewTable(all[:split])
		if got := before.WithAll(all[split:]); !got.Equal(one) {
			t.Errorf("after %d: %v, want %v", split, got.Overrides(), one.Overrides())
		}
		if !before.Equal(health.NewTable(all[:split])) {
			t.Error("the table that was added to has changed")
		}
	}
}
