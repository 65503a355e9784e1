package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestSlashInServiceNames takes a service that is named as Contour names endpoints
// through every command that takes the name of a service, with a real client, over a
// kill, and into a recording.
func TestSlashInServiceNames(t *testing.T) {
	const name = "shop/checkout/http"
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	p := newProcess(t, "", zones, []int{100, 100})
	edit(t, p.file, "- name: checkout\n", "- name: "+name+"\n")
	edit(t, p.file, "admin: {", "admin: {writable: true, ")
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	c, err := fleet.NewClient(fleet.ClientOptions{ID: "client", Cluster: "web", Locality: zones[0], Server: p.xds, Service: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p.await("demand", func(v admin.PlanView) bool {
		_, _ = c.Call(t.Context()) // what becomes of it is in the load reports
		return len(v.Services) == 1 && len(v.Services[0].Sources) == 1 && v.Services[0].Sources[0].Demand > 0
	})
	t.Setenv("ISOBAR_ADMIN", p.api)
	isobarPrints := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err != nil {
			t.Errorf("isobar %s: %v", strings.Join(args, " "), err)
		}
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("isobar %s prints no %s: %s", strings.Join(args, " "), want, out.String())
		}
	}
	var address string
	for a, z := range p.places {
		if z == zones[1] {
			address = a
		}
	}
	isobarPrints(name, "explain", name, "--from", "us/a")
	isobarPrints("us/a", "explain", name)
	isobarPrints("(?m)^"+name, "__complete", "explain", "shop/ch")
	isobarPrints("us/a", "__complete", "explain", name, "--from", "us/")
	isobarPrints("us/b", "capacity", name)
	isobarPrints(name, "history")
	isobarPrints("change", "history", name)
	p.await("a step of samples", func(admin.PlanView) bool {
		_, _ = c.Call(t.Context()) // demand goes on
		var out bytes.Buffer
		return run(t.Context(), []string{"samples", name}, &out, &out) == nil && strings.Contains(out.String(), "DEMAND")
	})
	isobarPrints("us/b", "whatif", "--drain", name+"@us/b")
	isobarPrints("us/b", "whatif", "--drain", name+"@"+address)
	isobarPrints(name, "whatif", "--demand", name+"@us/a=+20%")
	isobarPrints(name+" paused", "pause", name)
	isobarPrints(name+" resumed", "resume", name)
	isobarPrints("in plan|since plan", "health", "set", name, address, "draining", "--force")
	isobarPrints(name, "health")
	p.await("the client has taken the plan with the drain", func(admin.PlanView) bool {
		var out bytes.Buffer
		return run(t.Context(), []string{"clients"}, &out, &out) == nil && strings.Contains(out.String(), "1 of 1 client in sync")
	})
	isobarPrints(name, "top", "-n", "1")

	p.kill()
	p.start()
	drains := func(v admin.PlanView) bool {
		s := v.Services[0].Sources
		return v.Services[0].Name == name && len(s) == 1 && len(s[0].Shares) == 1
	}
	p.await("drain over the restart", drains)
	isobarPrints(name+".*draining", "health")

	file := filepath.Join(t.TempDir(), "a.trace")
	isobarPrints("recorded|plans", "record", "-o", file, "--for", "3s")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"replay", file, "--set", name + ":policy=nearest"}, &out, &out); err != nil || !strings.Contains(out.String(), "byte for byte") {
		t.Errorf("replay: %v: %s", err, out.String())
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(p.file), "state", "shop")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state has a directory named by the service: %v", err)
	}
}
