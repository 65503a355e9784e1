package main

import (
	"strings"

	"github.com/spf13/pflag"
)

// environmentPrefix begins the variables that --from-env reads.
const environmentPrefix = "ISOBAR_"

// environmentFlags are the flags that have a variable: ISOBAR_NODE_ID is that of
// --node-id. The parts of --locality have one each, as Kubernetes has a label for each.
var environmentFlags = []string{"server", "node-id", "cluster", "ca", "cert", "key"}

const (
	regionVariable  = environmentPrefix + "REGION"
	zoneVariable    = environmentPrefix + "ZONE"
	subZoneVariable = environmentPrefix + "SUB_ZONE"
	// nodeNameVariable counts where there is no zone.
	nodeNameVariable = environmentPrefix + "NODE_NAME"
)

func variableOf(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variableNames lists all variables that --from-env reads.
func variableNames() []string {
	out := []string{regionVariable, zoneVariable, subZoneVariable, nodeNameVariable}
	for _, name := range environmentFlags {
		out = append(out, variableOf(name))
	}
	return out
}

// readEnvironment sets the flags that the call leaves out. It refuses an empty region
// or zone: a client without its zone gets the weights of no zone. Where both are known,
// the zone counts, not the Node.
func (f *bootstrapFlags) readEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	for _, name := range environmentFlags {
		value, found := lookup(variableOf(name))
		if !found || flags.Changed(name) {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return usagef("%s: %w", variableOf(name), err)
		}
	}
	if flags.Changed("locality") || flags.Changed("node-name") {
		return nil
	}
	if zone, _ := lookup(zoneVariable); zone == "" {
		if f.nodeName, _ = lookup(nodeNameVariable); f.nodeName != "" {
			return nil
		}
	}
	var parts []string
	for _, p := range []struct{ variable, label string }{
		{regionVariable, "topology.kubernetes.io/region"}, {zoneVariable, "topology.kubernetes.io/zone"},
	} {
		value, _ := lookup(p.variable)
		if value == "" {
			return usagef("%s is not set or empty: set it, or give --locality. In Kubernetes 1.35 or newer: "+
				"fieldRef: {fieldPath: \"metadata.labels['%s']\"}; in older versions a Pod does not have this label: "+
				"set %s from spec.nodeName there", p.variable, p.label, nodeNameVariable)
		}
		parts = append(parts, value)
	}
	if value, _ := lookup(subZoneVariable); value != "" {
		parts = append(parts, value)
	}
	f.locality = strings.Join(parts, "/")
	return nil
}
