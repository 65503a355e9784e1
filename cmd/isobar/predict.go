package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func predictCommand() *cobra.Command {
	var output outputFormat
	var policy string
	options := dataplane.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "predict ASSIGNMENT",
		Short: "Show what Envoy and gRPC do with any endpoint assignment",
		Long: `Show what Envoy and gRPC do with a ClusterLoadAssignment: the load of each
priority, panic, the shares of localities and endpoints, and the percentage of
requests that is not dropped. The assignment need not come from Isobar.

The file (- for standard input) is proto JSON, v3 or v2, or the equivalent
YAML; it may also be a DiscoveryResponse with one assignment. Loads and pass_percent
are percentages, shares are fractions of the requests that are not dropped.

The command assumes that Envoy's cluster has locality_weighted_lb_config (and
therefore no zone-aware routing), no fail_traffic_on_panic and no slow start, and
that gRPC uses round_robin within a locality. Warnings on standard error say what
Envoy or gRPC refuses and, with --lb-policy, which settings of the cluster would
change the prediction. Envoy merges several entries of one locality, and uses only
the first endpoint with an address; gRPC refuses both.`,
		Example: "  isobar predict assignment.json\n  isobar predict assignment.json -o text --panic-threshold 0\n" +
			"  isobar predict assignment.json --lb-policy maglev\n" +
			"  isobar predict assignment.json --exclude 10.0.0.1:8080 --overprovisioning-factor 100",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPredictFlags(cmd, &options); err != nil {
				return err
			}
			var err error
			if options.LBPolicy, err = dataplane.ParseLBPolicy(policy); err != nil {
				return usagef("--lb-policy: %v", err)
			}
			c, err := readCluster(args[0], cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := checkExcluded(&c, options.Excluded); err != nil {
				return err
			}
			found := dataplane.PredictAll(c, options)
			if cmd.Flags().Changed("lb-policy") {
				for _, w := range settingsThatMatter(&c, &found.Envoy, options.LBPolicy) {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %s\n", inputName(args[0]), w) // nobody to tell
				}
			}
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
		"percent, instead of the assignment's own or of 140; Envoy only")
	cmd.Flags().Float64Var(&options.PanicThreshold, "panic-threshold", options.PanicThreshold,
		"whole percent of hosts, 0 to 100; 0 = no panic mode; Envoy only")
	cmd.Flags().StringVar(&policy, "lb-policy", options.LBPolicy.String(),
		"lb_policy of Envoy's cluster: "+strings.Join(dataplane.LBPolicies(), ", "))
	cmd.Flags().StringArrayVar(&options.Excluded, "exclude", nil,
		"address of a host that does not count yet, for example 10.0.0.1:8080; repeatable; Envoy only")
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
	m, warnings, err := resource.ReadAssignment(data)
	if err != nil {
		return dataplane.Cluster{}, fmt.Errorf("%s:%w", name, err)
	}
	c, err := resource.ClusterFrom(m)
	if err != nil {
		return dataplane.Cluster{}, fmt.Errorf("%s: %w", name, err)
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintf(stderr, "%s:%v: ignored\n", name, w) // nobody to tell
	}
	refused := resource.RefusedByEnvoy(m)
	if refused != nil {
		_, _ = fmt.Fprintf(stderr, "%s: warning: Envoy refuses this and keeps its last assignment, so these shares do not apply: %v\n", name, refused)
	}
	grpc := resource.RefusedByGRPC(m)
	if grpc != nil {
		_, _ = fmt.Fprintf(stderr, "%s: warning: gRPC refuses this and keeps its last assignment, so these shares do not apply: %v\n", name, grpc)
	}
	if err := resource.CheckAssignment(m, m.GetClusterName()); err != nil && refused == nil && (grpc == nil || err.Error() != grpc.Error()) {
		_, _ = fmt.Fprintf(stderr, "%s: warning: some clients refuse this assignment, or interpret it differently: %v\n", name, err)
	}
	return c, nil
}

// settingsThatMatter names the settings of Envoy's cluster under which this
// assignment would be served otherwise than predicted.
func settingsThatMatter(c *dataplane.Cluster, envoy *dataplane.Prediction, policy dataplane.LBPolicy) []string {
	notes := policyNotes(policy)
	if weighsLocalities(c) && policy != dataplane.RingHash && policy != dataplane.Maglev {
		notes = append(notes, "the cluster needs locality_weighted_lb_config: without it, Envoy ignores the weights of localities, and"+
			" with zone-aware routing instead, the Envoy's own zone can get all the traffic")
	}
	if policy == dataplane.RingHash || policy == dataplane.Maglev {
		if slices.ContainsFunc(c.Priorities, func(p dataplane.Priority) bool { return len(p.Localities) == 0 }) {
			notes = append(notes, fmt.Sprintf("a priority has no localities: with %s, Envoy 1.36 crashes on it (1.40 does not)", policy))
		}
	}
	for p := range envoy.Priorities {
		if envoy.Priorities[p].Panic {
			notes = append(notes, fmt.Sprintf("P%d panics: with fail_traffic_on_panic Envoy answers its requests with 503 instead", p))
		}
	}
	return notes
}

// policyNotes tells what a policy does not do as the prediction has it.
func policyNotes(policy dataplane.LBPolicy) []string {
	switch policy {
	case dataplane.LeastRequest:
		return []string{"least_request lowers the weights of endpoints that have requests in flight: these shares hold for requests that arrive one at a time" +
			" (active_request_bias 0 keeps the weights); slow start raises a new endpoint's weight over time"}
	case dataplane.Random:
		return []string{"random ignores the weights of endpoints"}
	case dataplane.RingHash, dataplane.Maglev:
		return []string{fmt.Sprintf("%s gives each endpoint a part of the hash space, not of the requests: these shares hold only for many different hashes, and"+
			" for ring_hash only roughly, depending on the ring size; unhealthy endpoints do not reduce the weight of their locality,"+
			" degraded endpoints get no requests,"+
			" and Envoy answers 503 for a priority without locality weights", policy)}
	default:
		return []string{}
	}
}

// weighsLocalities reports whether a priority has localities to choose from.
func weighsLocalities(c *dataplane.Cluster) bool {
	for p := range c.Priorities {
		weighted := 0
		for _, l := range c.Priorities[p].Localities {
			if l.Weight > 0 {
				weighted++
			}
		}
		if weighted > 0 && len(c.Priorities[p].Localities) > 1 {
			return true
		}
	}
	return false
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
			parts = []string{"no endpoint: requests fail"}
		}
		if dropped := 100 - plane.is.PassPercent; dropped > 0 {
			parts = append(parts, fmt.Sprintf("%.4g%% of all requests dropped first", dropped))
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
		text += " that no endpoint can take"
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

// localityOf returns a locality of a prediction that may be a server's answer.
func localityOf(p *dataplane.Prediction, i, j int) dataplane.LocalityPrediction {
	if i < len(p.Priorities) && j < len(p.Priorities[i].Localities) {
		return p.Priorities[i].Localities[j]
	}
	return dataplane.LocalityPrediction{}
}
