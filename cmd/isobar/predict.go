package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/wire"
)

func predictCommand() *cobra.Command {
	var output outputFormat
	options := dataplane.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "predict ASSIGNMENT",
		Short: "Show what Envoy and gRPC do with any endpoint assignment",
		Long: `Show what Envoy and gRPC do with a ClusterLoadAssignment: the load of each
priority, panic, the shares of localities and endpoints, and what passes the
drops. It need not come from Isobar.

The file (- for standard input) is proto JSON, v3 or v2, or YAML of the same
form; a DiscoveryResponse with one assignment will do. Loads and pass_percent
are percent, shares are fractions of the requests that pass the drops.

It is taken that Envoy's cluster has locality_weighted_lb_config, and that gRPC
picks the endpoints of a locality in turn, as its round_robin does. Envoy joins
entries of one locality and takes of an address the first; gRPC refuses both.`,
		Example: "  isobar predict assignment.json\n  isobar predict assignment.json -o text --panic-threshold 0\n" +
			"  isobar predict assignment.json --exclude 10.0.0.1:8080 --overprovisioning-factor 100",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPredictFlags(cmd, &options); err != nil {
				return err
			}
			c, err := readCluster(args[0], cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := checkExcluded(&c, options.Excluded); err != nil {
				return err
			}
			found := dataplane.PredictAll(c, options)
			if output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), found)
			}
			return writePredictions(cmd.OutOrStdout(), &found)
		},
	}
	output.register(cmd)
	output = outputJSON
	cmd.Flags().Lookup("output").DefValue = string(outputJSON)
	cmd.Flags().Uint32Var(&options.OverprovisioningFactor, "overprovisioning-factor", 0,
		"percent, in place of the assignment's own or of 140; Envoy only")
	cmd.Flags().Float64Var(&options.PanicThreshold, "panic-threshold", options.PanicThreshold,
		"percent of hosts, 0 to 100, without the fraction; 0 is no panic; Envoy only")
	cmd.Flags().StringArrayVar(&options.Excluded, "exclude", nil,
		"address of a host that counts nowhere yet, for example 10.0.0.1:8080; repeatable; Envoy only")
	return cmd
}

func checkPredictFlags(cmd *cobra.Command, o *dataplane.Options) error {
	switch {
	case !(o.PanicThreshold >= 0 && o.PanicThreshold <= 100): // nor NaN
		return usagef("--panic-threshold %v, want a percentage from 0 to 100", o.PanicThreshold)
	case cmd.Flags().Changed("overprovisioning-factor") && o.OverprovisioningFactor == 0:
		return usagef("--overprovisioning-factor 0, want at least 1 percent; 100 is no overprovisioning")
	}
	return nil
}

// readCluster reads an assignment from a file and tells on stderr what of it is
// left out, or not understood by all clients.
func readCluster(file string, stdin io.Reader, stderr io.Writer) (dataplane.Cluster, error) {
	name := inputName(file)
	data, err := readInput(file, stdin)
	if err != nil {
		return dataplane.Cluster{}, err
	}
	if data, err = config.AsJSON(name, data); err != nil {
		return dataplane.Cluster{}, err
	}
	m, warnings, err := wire.ReadAssignment(data)
	if err != nil {
		return dataplane.Cluster{}, fmt.Errorf("%s:%w", name, err)
	}
	c, err := wire.ClusterFrom(m)
	if err != nil {
		return dataplane.Cluster{}, fmt.Errorf("%s: %w", name, err)
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintf(stderr, "%s:%v: left out\n", name, w) // nobody to tell
	}
	grpc := wire.RefusedByGRPC(m)
	if grpc != nil {
		_, _ = fmt.Fprintf(stderr, "%s: warning: gRPC refuses this and stays with what it had, so its shares do not apply: %v\n", name, grpc)
	}
	if err := wire.CheckAssignment(m, m.GetClusterName()); err != nil && (grpc == nil || err.Error() != grpc.Error()) {
		_, _ = fmt.Fprintf(stderr, "%s: warning: some clients refuse this, or take it otherwise: %v\n", name, err)
	}
	return c, nil
}

// checkExcluded refuses addresses that the assignment does not have: they were
// mistyped.
func checkExcluded(c *dataplane.Cluster, excluded []string) error {
	var known []string
	for i := range c.Priorities {
		for _, l := range c.Priorities[i].Localities {
			for k := range l.Endpoints {
				known = append(known, l.Endpoints[k].Address)
			}
		}
	}
	for _, address := range excluded {
		if slices.Contains(known, address) {
			continue
		}
		if len(known) == 0 {
			return fmt.Errorf("--exclude %s: the assignment has no endpoints", address)
		}
		return fmt.Errorf("--exclude %s: no endpoint has this address; one is %s", address, known[0])
	}
	return nil
}

// writePredictions prints both data planes side by side.
func writePredictions(w io.Writer, p *dataplane.Predictions) error {
	var b strings.Builder
	writeLoads(&b, p)
	if len(p.Envoy.Priorities) > 0 {
		b.WriteByte('\n')
		writeColumns(&b, shareColumns(p, true))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLoads prints a line for each data plane: what its priorities get.
func writeLoads(b *strings.Builder, p *dataplane.Predictions) {
	for _, plane := range []struct {
		name string
		is   *dataplane.Prediction
	}{{"envoy", &p.Envoy}, {"grpc", &p.GRPC}} {
		var parts []string
		for i := range plane.is.Priorities {
			parts = append(parts, loadText(i, &plane.is.Priorities[i])...)
		}
		if len(parts) == 0 {
			parts = []string{"nowhere to send: requests fail"}
		}
		if dropped := 100 - plane.is.PassPercent; dropped > 0 {
			parts = append(parts, fmt.Sprintf("%.4g%% of all requests dropped before", dropped))
		}
		fmt.Fprintf(b, "%-10s %s\n", plane.name, strings.Join(parts, ", "))
	}
}

// loadText says what one priority gets; nothing when it gets nothing.
func loadText(i int, p *dataplane.PriorityPrediction) []string {
	if p.Load+p.DegradedLoad == 0 {
		return nil
	}
	text := fmt.Sprintf("P%d %d%%", i, p.Load+p.DegradedLoad)
	if p.DegradedLoad > 0 && !p.Panic {
		text += fmt.Sprintf(" (%d%% to degraded endpoints)", p.DegradedLoad)
	}
	if p.Panic {
		text += " in panic"
	}
	share := 0.0
	for j := range p.Localities {
		share += p.Localities[j].Share
	}
	if share == 0 {
		text += " that nobody can take"
	}
	return []string{text}
}

// shareColumns lists the localities and, if wanted, their endpoints, with their
// shares.
func shareColumns(p *dataplane.Predictions, endpoints bool) []column {
	tier, place, address := column{head: "TIER"}, column{head: "LOCALITY"}, column{head: "ENDPOINT"}
	envoy, grpc := column{head: "ENVOY"}, column{head: "GRPC"}
	add := func(i int, l *dataplane.LocalityPrediction, at string, e, g float64) {
		tier.cells = append(tier.cells, fmt.Sprintf("P%d", i))
		place.cells = append(place.cells, orDash(l.Locality.String()))
		address.cells = append(address.cells, at)
		envoy.cells = append(envoy.cells, percent(e))
		grpc.cells = append(grpc.cells, percent(g))
	}
	for i := range p.Envoy.Priorities {
		for j := range p.Envoy.Priorities[i].Localities {
			l, g := &p.Envoy.Priorities[i].Localities[j], localityOf(&p.GRPC, i, j)
			add(i, l, "", l.Share, g.Share)
			for k := range l.Endpoints {
				if endpoints && k < len(g.Endpoints) {
					add(i, l, orDash(l.Endpoints[k].Address), l.Endpoints[k].Share, g.Endpoints[k].Share)
				}
			}
		}
	}
	if !endpoints {
		return []column{tier, place, envoy, grpc}
	}
	return []column{tier, place, address, envoy, grpc}
}

// localityOf gives a locality of a prediction that may be a server's answer.
func localityOf(p *dataplane.Prediction, i, j int) dataplane.LocalityPrediction {
	if i < len(p.Priorities) && j < len(p.Priorities[i].Localities) {
		return p.Priorities[i].Localities[j]
	}
	return dataplane.LocalityPrediction{}
}
