package replicas

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

// takeover is what the documentation promises for the first plan after the leader is
// gone: the lease of 10 s runs out, and its successor gathers and claims.
const takeover = 12 * time.Second

// TestGroupOnEtcd takes the leader of a group of three real servers away, by SIGKILL and
// by SIGSTOP, while an etcd of three members elects and real gRPC clients send requests:
// no request fails, no version goes back or has two contents, and the next plan comes in
// time. A leader that goes on after a pause publishes nothing.
func TestGroupOnEtcd(t *testing.T) {
	program := filepath.Join(t.TempDir(), "isobar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/isobar")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building isobar: %v; %s", err, out)
	}
	var endpoints []string
	for _, m := range startCluster(t, 3).members {
		endpoints = append(endpoints, fmt.Sprintf("%q", "http://"+strings.TrimPrefix(m.client, "http://")))
	}
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	g := replicatest.New(t, replicatest.Options{
		Program: program, Zones: zones, Election: "{etcd: {endpoints: [" + strings.Join(endpoints, ", ") + "]}}",
	})
	for _, r := range g.Replicas {
		g.Start(r)
	}
	g.Leader()
	load := g.StartLoad(zones[0], 3)

	before, version := g.Leader()
	g.Kill(before)
	took := g.AwaitVersion(version + nextClaim)
	t.Logf("SIGKILL of the leader: first plan of the next epoch after %v", took.Round(time.Millisecond))
	if took > takeover {
		t.Errorf("the next plan came after %v", took)
	}
	g.Start(before)
	g.Await("the return of "+before.Name, func() bool { return before.Version(t.Context()) > version })

	before, version = g.Leader()
	g.Freeze(before)
	took = g.AwaitVersion(version + nextClaim)
	t.Logf("SIGSTOP of the leader: first plan of the next epoch after %v", took.Round(time.Millisecond))
	if took > takeover {
		t.Errorf("the next plan came after %v", took)
	}
	after, _ := g.Leader()
	g.Thaw(before)
	g.Await("the old leader to follow", func() bool {
		var s admin.ReplicaGroup
		return before.Get(t.Context(), "/v1/replicas", &s) == nil && s.Leader == after.Name && before.Version(t.Context()) > version+nextClaim
	})

	before, version = g.Leader()
	began := time.Now()
	g.Stop(before)
	g.AwaitVersion(version + nextClaim)
	t.Logf("SIGTERM of the leader: it ended, and the next epoch had a plan, after %v", time.Since(began).Round(time.Millisecond))
	g.Judge(load)
}

// nextClaim is how far above a version each version of the next claim is, at least.
const nextClaim = 900_000
