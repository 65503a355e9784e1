package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/loadgen"
)

// benchServer starts the real server with a few services.
func benchServer(t *testing.T) string {
	t.Helper()
	topology := &isobar.Topology{Network: &isobar.Network{}}
	for s := range 3 {
		topology.Services = append(topology.Services, isobar.Service{
			Name: fmt.Sprintf("service-%d", s),
			Localities: []isobar.ServiceLocality{{
				Locality:  isobar.MustLocality("us/a"),
				Endpoints: []isobar.Endpoint{{Address: fmt.Sprintf("10.0.0.%d:80", s)}},
			}},
		})
	}
	m, err := fleet.ServeIsobar(t.Context(), topology, &fleet.Scenario{Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m.XDSAddress()
}

func TestBench(t *testing.T) {
	server := benchServer(t)
	var stdout, stderr bytes.Buffer
	args := []string{"bench", "--server", server, "--clients", "20", "--ramp", "50ms", "--duration", "1500ms", "--reconnect", "--rate", "10"}
	if err := run(t.Context(), append(args, "-o", "json"), &stdout, &stderr); err != nil {
		t.Fatal(err, stderr.String())
	}
	var got loadgen.Result
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Clients != 20 || got.FirstEDS.Count != 20 || got.Reconnect.Count != 20 || got.Reports == 0 || !got.OK() {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{"warning: 20 clients report 10 requests/s each", "holding: 20 of 20 clients served"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("standard error lacks %q:\n%s", want, stderr.String())
		}
	}
}

func TestBenchInWords(t *testing.T) {
	server := benchServer(t)
	var stdout, stderr bytes.Buffer
	args := []string{"bench", "--server", server, "--clients", "4", "--ramp", "0s", "--duration", "100ms", "--services", "service-1,lost", "--patience", "1s"}
	err := run(t.Context(), args, &stdout, &stderr)
	if err == nil || exitCode(err) != exitError {
		t.Errorf("clients lack a service, but the error is %v", err)
	}
	for _, want := range []string{
		`clients +4 on 1 connection, for \d+ s; each has 2 of 2 services`,
		`localities +us/a`, `first EDS +p50 .* ms, p99 .* ms, max .* ms; none silent; 4 LACK A SERVICE`, `NACKs +0`, `errors +0`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout.String()) {
			t.Errorf("no line %s in\n%s", want, stdout.String())
		}
	}
}

// TestBenchCutShort: what was not done is no success, and is told.
func TestBenchCutShort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	args := []string{"bench", "--server", benchServer(t), "--clients", "50", "--ramp", "1m", "--reconnect", "--services", "service-1"}
	if err := run(ctx, args, &stdout, &stderr); err == nil || exitCode(err) != exitError {
		t.Errorf("clients were not served, but the error is %v", err)
	}
	for _, want := range []string{`\d+ had not connected when the run ended early`, `reconnect +not reached: the run ended early`} {
		if !regexp.MustCompile(want).MatchString(stdout.String()) {
			t.Errorf("no %s in\n%s", want, stdout.String())
		}
	}
}
