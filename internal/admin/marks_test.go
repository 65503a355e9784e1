package admin_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/samples"
)

// board keeps marks.
type board struct {
	mu    sync.Mutex
	marks []admin.SampleMark
	err   error
}

func (*board) Samples(string, bool) (samples.Series, bool) { return samples.Series{}, false }

func (b *board) Marks() []admin.SampleMark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.marks
}

func (b *board) Mark(m admin.SampleMark) error {
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
	b := &board{}
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
