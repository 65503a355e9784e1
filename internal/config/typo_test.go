package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/config"
)

// typoBase is a file without any error or warning.
const typoBase = `xds:
  listen: "127.0.0.1:18000"
  admission: {streams_per_second: 1000, burst: 2000}
admin:
  listen: "127.0.0.1:18080"
  writable: true
report_interval: 5s
tick: 5s
degradation:
  reports: {cautious_after: 30s, hold_after: 60s}
network:
  latency_ms:
    - {from: us-east, to: eu-west, ms: 80}
  egress:
    - {from: us-east, to: eu-west, price: 5}
defaults:
  mode: full
  ceiling: 0.8
services:
  - name: checkout
    mode: bounded
    policy: latency
    max_shift: 10
    connect_timeout: 2s
    outlier_detection: {consecutive_5xx: 5}
    health_checks:
      - http: {path: /healthz}
        interval: 5s
        timeout: 1s
    localities:
      - locality: us-east/b
        max_rate: 1000
        concurrency: 8
        endpoints: ["127.0.0.1:50051", {address: "127.0.0.1:50052", weight: 2}]
      - locality: eu-west/a
        max_rate: 500
        endpoints: [{address: "127.0.0.1:50061"}]
  - name: cart
    calls:
      - {service: checkout, per_request: 2}
    health_checks: [{tcp: {}}]
    localities:
      - locality: us-east/b
        max_rate: 1000
        endpoints: ["127.0.0.1:50071"]
      - locality: eu-west/a
        max_rate: 1000
        endpoints: ["127.0.0.1:50072"]
`

// TestOneTypoOneMessage: one mistake in a good file is told once, whatever else it makes
// unreadable.
func TestOneTypoOneMessage(t *testing.T) {
	if _, warnings, err := config.Decode("x.yaml", []byte(typoBase)); err != nil || len(warnings) > 0 {
		t.Fatalf("the file without a typo: %v, %v", err, warnings)
	}
	first := "locality: us-east/b\n        max_rate: 1000\n        concurrency"
	for _, tt := range []struct{ old, typo, says string }{
		// Keys, at each level.
		{"xds:", "xsd:", "did you mean xds?"},
		{"admission:", "admision:", "did you mean admission?"},
		{"services:", "service:", "did you mean services?"},
		{"- name: checkout", "- nam: checkout", "did you mean name?"},
		{"mode: bounded", "mod: bounded", "did you mean mode?"},
		{"localities:", "locality:", "put it into `localities`; localities is missing"},
		{"health_checks:\n", "healthchecks:\n", "did you mean health_checks?"},
		{"http: {path", "htpp: {path", "did you mean http?"},
		{first, strings.Replace(first, "locality", "zone", 1), "; locality is missing"},
		{first, strings.Replace(first, "max_rate", "max_rat", 1), "did you mean max_rate?"},
		{first, strings.Replace(first, "max_rate", "rate", 1), "the fields here are"},
		{`endpoints: ["127.0.0.1:50071"]`, `hosts: ["127.0.0.1:50071"]`, "; endpoints is missing"},
		{`address: "127.0.0.1:50052"`, `host: "127.0.0.1:50052"`, "; address is missing"},
		{"service: checkout", "servce: checkout", "did you mean service?"},
		{"per_request: 2", "requests: 2", "; per_request is missing"},
		{"ms: 80", "latency: 80", "; ms is missing"},
		// Types and units.
		{first, strings.Replace(first, "1000", "1000/s", 1), "want a number"},
		{first, strings.Replace(first, "1000", "-1000", 1), "out of range"},
		{"ms: 80", "ms: 80ms", "want a number"},
		{"tick: 5s", "tick: 5", "write it as 5s"},
		{"tick: 5s", `tick: "5"`, "write it as 5s"},
		{"tick: 5s", `tick: " 2.5 "`, "write it as 2.5s"},
		{"tick: 5s", `tick: "500"`, "write a duration from 1s to 5m"},
		{"tick: 5s", "tick: 5 s", "write it as 5s"},
		{"tick: 5s", `tick: "1m 30s"`, "write it as 1m30s"},
		{"tick: 5s", `tick: "inf"`, "write it like 5s or 1m30s"},
		{"max_shift: 10", "max_shift: 10%", "want a number"},
		{`endpoints: ["127.0.0.1:50071"]`, `endpoints: "127.0.0.1:50071"`, "want a list"},
		// Names.
		{first, strings.Replace(first, "us-east/b", "us-east/b/c/d", 1), "us-east/b/c/d"},
		{"service: checkout", "service: chekout", "chekout"},
		{"to: eu-west, ms", "to: eu-wset, ms", "eu-wset"},
		// Indentation.
		{"    calls:", "   calls:", ""},
		{"        max_rate: 500", "       max_rate: 500", ""},
		{"  - name: cart", " - name: cart", ""},
		{"    mode: bounded", "  mode: bounded", ""},
		{"tick: 5s", "tick:5s", ""},
	} {
		t.Run(tt.typo, func(t *testing.T) {
			text := strings.Replace(typoBase, tt.old, tt.typo, 1)
			if text == typoBase {
				t.Fatalf("no %q in the file", tt.old)
			}
			_, problems, err := config.Decode("x.yaml", []byte(text))
			if all := (*config.Error)(nil); errors.As(err, &all) {
				problems = append(problems, all.Problems...)
			}
			if len(problems) != 1 || !strings.Contains(problems[0].String(), tt.says) {
				t.Errorf("want one message with %q, got %d:", tt.says, len(problems))
				for _, p := range problems {
					t.Error(p)
				}
			}
		})
	}
}
