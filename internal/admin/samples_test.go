package admin_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/samples"
)

// keeper returns the samples of legacy alone.
func keeper(name string, day bool) (samples.Series, bool) {
	if name != "legacy" {
		return samples.Series{}, false
	}
	step := 5 * time.Second
	if day {
		step = time.Minute
	}
	nan := math.NaN()
	return samples.Series{
		Begin: time.Unix(1000, 0).UTC(), Step: step,
		Values: []samples.Values{{Demand: 1234.5678, Drop: 0.123456, Gap: 1e-9}, {Demand: nan, Drop: nan, Gap: nan, CrossZone: nan, CrossRegion: nan}},
		Sites:  []samples.SiteSeries{{Locality: isobar.MustLocality("us-east/b"), Utilization: []float64{0.5, nan}}},
	}, true
}

func TestSamples(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) { o.Charts = charts(keeper) })
	const want = `{"service":"legacy","begin":"1970-01-01T00:16:40Z","step_seconds":60,"demand":[1235,null],"drop":[0.12346,null],"gap":[0,null],` +
		`"cross_zone":[0,null],"cross_region":[0,null],"localities":[{"locality":"us-east/b","utilization":[0.5,null]}]}` + "\n"
	if a := do(t, srv, "GET", "/v1/samples?service=legacy&span=day", ""); a.body != want {
		t.Errorf("got %s\nwant %s", a.body, want)
	}
	for path, code := range map[string]int{
		"/v1/samples": http.StatusOK, "/v1/samples?service=nobody": http.StatusNotFound, "/v1/samples?service=legacy&span=week": http.StatusBadRequest,
	} {
		if a := do(t, srv, "GET", path, ""); a.code != code {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Samples(t.Context(), "legacy", false)
	if err != nil || got.StepSeconds != 5 || len(got.Demand) != 2 || got.Demand[0] != 1235 || !math.IsNaN(got.Localities[0].Utilization[1]) {
		t.Errorf("%+v %v", got, err)
	}
	if a := do(t, start(t, newWorld(), nil), "GET", "/v1/samples", ""); a.code != http.StatusNotFound {
		t.Errorf("without samples: %d", a.code)
	}
}

// TestHistoryInOneLine: each change as a mark, and the change of one version alone.
func TestHistoryInOneLine(t *testing.T) {
	a, b := isobar.MustLocality("us/a"), isobar.MustLocality("us/b")
	op := &fixedHistory{changes: []plan.Change{
		{Version: 9, Previous: 8, Trigger: plan.TriggerTick, Services: []plan.ServiceChange{
			{Service: "cart", Reason: "near", Sites: []isobar.Locality{a, b}, Sources: []plan.SourceChange{{Source: a, Before: []uint16{10_000, 0}, After: []uint16{9000, 1000}}}},
			{Service: "checkout", Reason: "full", Sites: []isobar.Locality{a, b}, Sources: []plan.SourceChange{{Source: a, Before: []uint16{10_000, 0}, After: []uint16{7000, 3000}}}},
		}},
		{Version: 5, Previous: 4, Trigger: plan.TriggerOperator, Who: "ann", Reason: "test", Services: []plan.ServiceChange{{Service: "legacy", After: 0.5}}},
	}}
	srv := start(t, newWorld(), func(o *admin.Options) { o.Operator = op })
	var marks admin.ChangeMarks
	do(t, srv, "GET", "/v1/history?brief=true", "").decode(t, &marks)
	if len(marks.Marks) != 2 || marks.Marks[0].Most != "checkout" || marks.Marks[0].Moved != 0.3 || marks.Marks[0].Why != "full" || marks.Marks[0].Services != 2 ||
		marks.Marks[1].Most != "legacy" || marks.Marks[1].Who != "ann" {
		t.Errorf("%+v", marks)
	}
	var list admin.ChangeList
	do(t, srv, "GET", "/v1/history?version=5", "").decode(t, &list)
	if len(list.Changes) != 1 || list.Changes[0].Version != 5 || len(op.changes) != 2 {
		t.Errorf("%+v", list)
	}
	for path, code := range map[string]int{
		"/v1/history?version=7": http.StatusOK, "/v1/history?version=x": http.StatusBadRequest, "/v1/history?brief=perhaps": http.StatusBadRequest,
		"/v1/history?service=nobody": http.StatusNotFound, "/v1/history?service=cart": http.StatusOK,
	} {
		if a := do(t, srv, "GET", path, ""); a.code != code {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

// TestSpanOfTheHistory: what changed between two moments, largest first, and the changes
// around them.
func TestSpanOfTheHistory(t *testing.T) {
	a, b := isobar.MustLocality("us/a"), isobar.MustLocality("us/b")
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	change := func(version uint64, seconds int, trigger string, moved uint16) plan.Change {
		return plan.Change{Version: version, Previous: version - 1, Made: noon.Add(time.Duration(seconds) * time.Second), Trigger: trigger, Services: []plan.ServiceChange{
			{Service: "checkout", Sites: []isobar.Locality{a, b}, Sources: []plan.SourceChange{{Source: a, Before: []uint16{10_000, 0}, After: []uint16{10_000 - moved, moved}}}},
		}}
	}
	op := &fixedHistory{changes: []plan.Change{
		change(9, 70, plan.TriggerTick, 9000), change(8, 45, plan.TriggerTick, 100), change(7, 20, plan.TriggerHealth, 5000), change(6, 15, plan.TriggerTick, 6000), change(5, -1, plan.TriggerTick, 7000),
	}}
	srv := start(t, newWorld(), func(o *admin.Options) { o.Operator = op })
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Span(t.Context(), "checkout", noon, noon.Add(time.Minute))
	if err != nil || got.Count != 3 || got.Changes[0].Version != 7 || got.Changes[1].Version != 6 || got.Changes[2].Version != 8 ||
		!got.Before.Equal(noon.Add(-time.Second)) || !got.Next.Equal(noon.Add(70*time.Second)) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = remote.Span(t.Context(), "", noon.Add(time.Hour), noon.Add(2*time.Hour)); err != nil || got.Count != 0 || got.Changes == nil || got.Next != nil {
		t.Errorf("a span without changes: %+v %v", got, err)
	}
	for query, code := range map[string]int{
		"": http.StatusBadRequest, "?from=2030-01-01T12:00:00Z": http.StatusBadRequest, "?from=noon&to=2030-01-01T12:00:00Z": http.StatusBadRequest,
		"?from=2030-01-01T12:00:00Z&to=2030-01-01T12:00:00Z": http.StatusBadRequest, "?from=2030-01-01T12:00:00Z&to=2030-01-01T12:00:01Z&service=nobody": http.StatusNotFound,
	} {
		if a := do(t, srv, "GET", "/v1/history/span"+query, ""); a.code != code {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
}

// fixedHistory is an operator that has changes.
type fixedHistory struct {
	admin.Operator

	changes []plan.Change
}

func (f *fixedHistory) History(context.Context, string) ([]plan.Change, error) { return f.changes, nil }

// markLog keeps marks.
type markLog struct {
	mu    sync.Mutex
	marks []admin.SampleMark
	err   error
}

func (*markLog) Samples(string, bool) (samples.Series, bool) { return samples.Series{}, false }

func (b *markLog) Marks() []admin.SampleMark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.marks
}

func (b *markLog) Mark(m admin.SampleMark) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.marks = append(b.marks, m)
	}
	return b.err
}

// TestMarks: moments are marked with a text of one line, now or within the last day, by who
// may write.
func TestMarks(t *testing.T) {
	b := &markLog{}
	srv := start(t, newWorld(), func(o *admin.Options) { o.Charts = b })
	if a := do(t, srv, "GET", "/v1/marks", ""); a.code != http.StatusOK || a.body != `{"marks":[]}`+"\n" {
		t.Fatalf("none: %d %s", a.code, a.body)
	}
	at := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339Nano) }
	hour := at(time.Hour)
	for _, x := range []struct {
		body string
		code int
	}{
		{`{"text": "deployment\n of v42", "who": "ann"}`, http.StatusOK},
		{fmt.Sprintf(`{"text": "an hour ago", "at": %q}`, hour), http.StatusOK},
		{fmt.Sprintf(`{"text": "a clock ahead", "at": %q}`, at(-10*time.Second)), http.StatusOK},
		{fmt.Sprintf(`{"text": "too long ago", "at": %q}`, at(25*time.Hour)), http.StatusBadRequest},
		{fmt.Sprintf(`{"text": "to come", "at": %q}`, at(-time.Hour)), http.StatusBadRequest},
		{`{"text": " \u0000 "}`, http.StatusBadRequest},
		{`{"text": "x", "service": "checkout"}`, http.StatusBadRequest},
		{``, http.StatusBadRequest},
	} {
		if a := do(t, srv, "POST", "/v1/marks", x.body); a.code != x.code {
			t.Errorf("%s: %d instead of %d: %s", x.body, a.code, x.code, a.body)
		}
	}
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	list, err := remote.Marks(t.Context())
	if err != nil || len(list.Marks) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	if m := list.Marks[0]; m.Text != "deployment  of v42" || m.Who != "ann" || time.Since(m.At).Abs() > time.Minute {
		t.Errorf("%+v", m)
	}
	if m := list.Marks[1]; m.Who == "" || time.Since(m.At).Round(time.Minute) != time.Hour {
		t.Errorf("%+v", m)
	}
	b.err = fmt.Errorf("%w: no replica leads", isobar.ErrUnavailable)
	if a := do(t, srv, "POST", "/v1/marks", `{"text": "x"}`); a.code != http.StatusServiceUnavailable {
		t.Errorf("without a leader: %d %s", a.code, a.body)
	}
	readOnly := start(t, newWorld(), func(o *admin.Options) { o.Charts, o.Writable = b, false })
	if a := do(t, readOnly, "POST", "/v1/marks", `{"text": "x"}`); a.code != http.StatusForbidden {
		t.Errorf("read-only: %d", a.code)
	}
	if a := do(t, start(t, newWorld(), nil), "GET", "/v1/marks", ""); a.code != http.StatusNotFound {
		t.Errorf("without charts: %d", a.code)
	}
}
