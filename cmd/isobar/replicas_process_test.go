package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

// isobarOn runs a command against a replica.
func isobarOn(t *testing.T, r *replicatest.Process, args ...string) (string, error) {
	t.Helper()
	var out, stderr bytes.Buffer
	err := run(t.Context(), append(args, "--admin", r.API), &out, &stderr)
	return out.String() + stderr.String(), err
}

// operate asserts that operators can use any replica: what they write on a follower is in
// force on all, and leadership moves when they say so.
func operate(t *testing.T, g *replicatest.Group, leader *replicatest.Process) {
	t.Helper()
	follower := g.Replicas[0]
	if follower == leader {
		follower = g.Replicas[1]
	}
	if out, err := isobarOn(t, follower, "pause", "checkout", "-m", "a test"); err != nil {
		t.Fatalf("pause on a follower: %v; %s", err, out)
	}
	g.Await("a pause on all replicas", func() bool {
		for _, r := range g.Replicas {
			out, err := isobarOn(t, r, "status", "-o", "json")
			if err != nil && !errors.Is(err, errAttention) || !strings.Contains(out, "a test") {
				return false
			}
		}
		return true
	})
	if out, err := isobarOn(t, follower, "resume", "checkout"); err != nil {
		t.Fatalf("resume on a follower: %v; %s", err, out)
	}
	if out, err := isobarOn(t, follower, "health", "set", "checkout", g.Backends[1], "healthy"); err != nil {
		t.Fatalf("health set on a follower: %v; %s", err, out)
	}
	for _, r := range g.Replicas {
		out, err := isobarOn(t, r, "replicas", "status")
		if err != nil || !strings.Contains(out, "leader "+leader.Name+" since 20") || !strings.Contains(out, "3 of 3 replicas live, 2 more may fail") {
			t.Errorf("%s: %v; %s", r.Name, err, out)
		}
	}
	if out, err := isobarOn(t, follower, "replicas", "step-down"); err != nil || !strings.Contains(out, leader.Name) {
		t.Fatalf("step-down: %v; %s", err, out)
	}
	g.Await("another leader", func() bool {
		var s admin.ReplicaGroup
		return follower.Get(t.Context(), "/v1/replicas", &s) == nil && s.Leader != "" && s.Leader != leader.Name
	})
}

// TestReplicasUnderLoad kills and stops the leaders of a group of three real servers,
// while real grpc-go clients send requests through one address: no request fails, no
// version goes back, and no version has two contents.
func TestReplicasUnderLoad(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	self, err := os.Executable() // this test binary runs as isobar; see TestMain
	if err != nil {
		t.Fatal(err)
	}
	g := replicatest.New(t, replicatest.Options{
		Program: self, Zones: zones, Election: fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election")),
	})
	for _, r := range g.Replicas {
		g.Start(r)
	}
	leader, _ := g.Leader()
	load := g.StartLoad(zones[0], 3)
	g.Await("a decision by measured demand of all replicas' clients", func() bool {
		var v admin.PlanView
		if leader.Get(t.Context(), "/v1/plan", &v) != nil || len(v.Services) == 0 {
			return false
		}
		for _, s := range v.Services[0].Sources {
			if s.Source == zones[0] && s.Demand > 90 {
				return true
			}
		}
		return false
	})

	operate(t, g, leader)

	for _, way := range []string{"kill", "stop", "kill"} {
		before, version := g.Leader()
		if way == "kill" {
			g.Kill(before)
		} else {
			g.Stop(before)
		}
		took := g.AwaitVersion(version + 999_000) // a version of the next claim
		after, later := g.Leader()
		t.Logf("%s of the leader: first plan of the next epoch on all replicas after %v; %s led with version %d, %s leads with %d",
			way, took.Round(time.Millisecond), before.Name, version, after.Name, later)
		if after.Name == before.Name {
			t.Errorf("%s leads again", after.Name)
		}
		g.Start(before)
		g.Await("the return of "+before.Name, func() bool { return before.Version(t.Context()) > version })
	}
	// A replica that starts takes over what operators set a moment after its first plan.
	for _, r := range g.Replicas {
		g.Await("what an operator set before leaders were killed, on "+r.Name, func() bool {
			out, err := isobarOn(t, r, "health", "-o", "json")
			return err == nil && strings.Contains(out, g.Backends[1])
		})
	}
	g.Judge(load)
}
