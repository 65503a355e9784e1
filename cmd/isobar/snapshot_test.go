package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestSnapshots saves what operators wrote of a real server, loses it, and restores it;
// it restores into a server that has something else, with and without --prune, and shows
// what is refused.
func TestSnapshots(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	p := newProcess(t, "", zones, []int{100, 100})
	edit(t, p.file, "admin: {", "admin: {writable: true, ")
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	t.Setenv("ISOBAR_ADMIN", p.api)
	isobar := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), args, &out, &out)
		return out.String(), err
	}
	prints := func(want string, args ...string) {
		t.Helper()
		out, err := isobar(args...)
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("isobar %s prints no %s: %v %s", strings.Join(args, " "), want, err, out)
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, err := isobar(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("isobar %s: %v %s; want the refusal %q", strings.Join(args, " "), err, out, want)
		}
	}
	send := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.api+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s", method, path, resp.Status)
		}
	}
	const search = `{"name": "search", "request_timeout": "2s", "policy": "nearest", "localities": [` +
		`{"locality": "us/a", "max_rate": 50, "endpoints": [{"address": "127.0.0.1:12"}, {"address": "127.0.0.1:13", "weight": 3}]}]}`
	send("PUT", "/v1/services/search", search)
	send("PUT", "/v1/services/cart", strings.Replace(search, "search", "cart", 1))
	prints("in plan|since plan", "health", "set", "search", "127.0.0.1:12", "draining", "--force", "--who", "ann", "-m", "a disk")
	prints("paused", "pause", "search", "-m", "a canary")

	file := filepath.Join(t.TempDir(), "operators.json")
	prints("^"+regexp.QuoteMeta(file)+": 2 services, 1 health mark, 1 pause\n$", "snapshot", "save", file)
	prints(`(?s)2 services, 1 health mark, 1 pause\nservice cart: 1 locality, 2 endpoints\nservice search.*health search 127.0.0.1:12 draining\nsearch paused.*a canary`,
		"snapshot", "inspect", file)
	prints("^nothing to change\n$", "snapshot", "restore", file, "--prune", "--dry-run")

	prints("resumed", "resume", "search")
	send("DELETE", "/v1/services/search", "")
	send("PUT", "/v1/services/cart", strings.Replace(strings.Replace(search, "search", "cart", 1), ":13", ":14", 1))
	send("PUT", "/v1/services/late", strings.Replace(search, "search", "late", 1))
	prints("paused", "pause", "late")
	lines := "service cart %[1]swritten\nservice search %[1]swritten\nhealth of search 127.0.0.1:12 %[1]sset to draining\nsearch %[1]spaused\n"
	const unchecked = "warning: the drain of search 127.0.0.1:12 is not checked; the server may refuse it\n"
	prints("^"+strings.ReplaceAll(lines, "%[1]s", "would be ")+unchecked+"$", "snapshot", "restore", file, "--dry-run")
	prints("^"+strings.ReplaceAll(lines, "%[1]s", "")+"$", "snapshot", "restore", file, "--force")
	prints("^nothing to change\n$", "snapshot", "restore", file)
	prints("^service late deleted\nlate resumed\n$", "snapshot", "restore", file, "--prune")
	prints("^nothing to change\n$", "snapshot", "restore", file, "--prune")
	prints(`"reason": "a canary"`, "status", "-o", "json")
	prints(`(?s)"who": "ann",\s+"reason": "a disk"`, "health", "-o", "json")

	edit(t, file, `"search"`, `"checkout"`)
	prints(`warning: service checkout \(file\) has another owner`, "snapshot", "restore", file, "--dry-run")
	edit(t, file, `"format": 1`, `"format": 2`)
	refused("format 2, and this program reads up to 1", "snapshot", "inspect", file)
	if err := os.WriteFile(file, []byte("services: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("not a snapshot", "snapshot", "restore", file)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("it is empty", "snapshot", "inspect", file)
}

// TestRestoreGoesOn restores a snapshot of which the server refuses a drain: the other entries are
// restored, the refused one is listed with the reason, and a dry run shows it before.
func TestRestoreGoesOn(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a")}
	p := newProcess(t, "", zones, []int{100})
	edit(t, p.file, "admin: {", "admin: {writable: true, ")
	p.start()
	client := p.clients(zones, 1)[0]
	gen := fleet.Poisson{
		Rate: func(time.Time) float64 { return 60 },
		Send: func(ctx context.Context, _ time.Time) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_, _ = client.Call(ctx) // what becomes of it is in the load reports
		},
		Refuse: func(time.Time, string) {},
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { gen.Run(ctx) })
	defer load.Wait()
	defer stop()
	p.await("demand", func(v admin.PlanView) bool {
		return v.Version != "" && len(v.Services[0].Sources) == 1 && v.Services[0].Sources[0].Demand > 30
	})
	t.Setenv("ISOBAR_ADMIN", p.api)
	isobar := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), args, &out, &out)
		return out.String(), err
	}
	var address string
	for address = range p.places { // there is one
	}
	file := filepath.Join(t.TempDir(), "operators.json")
	snapshot := fmt.Sprintf(`{"format": 1, "services": [], "health": [{"service": "checkout", "address": %q, "status": "draining"}],
		"paused": [{"service": "checkout", "reason": "a canary"}]}`, address)
	if err := os.WriteFile(file, []byte(snapshot), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ option, want string }{
		{"--dry-run", "checkout would be paused\nwould be refused: "}, {"--prune", "checkout paused\nrefused: "},
	} {
		c.want += "the health draining of checkout " + address + ": the remaining capacity could not carry the traffic: "
		out, err := isobar("snapshot", "restore", file, c.option)
		if !strings.HasPrefix(out, c.want) || (err == nil) != (c.option == "--dry-run") {
			t.Errorf("restore %s prints no %q: %v %s", c.option, c.want, err, out)
		}
	}
	if out, _ := isobar("status", "-o", "json"); !strings.Contains(out, "a canary") {
		t.Errorf("the pause is missing: %s", out)
	}
}
