package config

import "github.com/isobar-xds/isobar/internal/config/strict"

// deeper are fields that the root of a file does not have, but what stands
// beneath it: who copies a few lines from somewhere often begins there.
func deeper() []strict.Field {
	var out []strict.Field
	for _, of := range []struct {
		where string
		names []string
	}{
		{
			"it belongs to a service in `services`, or for all of them into `defaults`", []string{
				"mode", "policy", "isolation", "residency", "failover_threshold", "promote", "max_shift", "max_shed", "service_time_ms", "error_cost_ms",
				"capacity_trust", "limits",
			},
		},
		{"it belongs to a service in `services`", []string{"name", "localities", "orca", "health_checks", "checkers", "calls", "criticality", "assignment"}},
		{"it belongs to a locality of a service, or for all of them into `defaults`", []string{"ceiling"}},
		{"it belongs to a locality of a service in `services`", []string{"locality", "endpoints", "max_rate", "concurrency"}},
		{"it belongs to a scenario, which `isobar simulate` runs", []string{"title", "seed", "length", "warmup", "demand", "outages", "capacity", "price"}},
		{"it belongs to `network`", []string{"latency_ms", "egress"}},
		{"it belongs to `xds`, and another one to `admin`", []string{"listen", "tls", "insecure"}},
		{"it belongs to `xds`", []string{"identities", "admission", "max_streams", "listen_rest", "listen_2017", "clients_2017", "proxy_protocol"}},
		{"it belongs to `admin`", []string{"writable", "token_file", "hosts"}},
	} {
		for _, name := range of.names {
			out = append(out, strict.Field{Name: name, Elsewhere: of.where})
		}
	}
	return out
}

// renamedOfLocality are the former names of fields of a locality.
var renamedOfLocality = map[string]string{"background": "unmanaged_load", "scaler": "capacity_scaler"}

// renamed are fields that had other names before: the error names the new one.
func renamed(names map[string]string) []strict.Field {
	out := make([]strict.Field, 0, len(names))
	for old, now := range names {
		out = append(out, strict.Field{Name: old, Elsewhere: "its name is `" + now + "` now"})
	}
	return out
}
