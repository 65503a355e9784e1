package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/member"
	"github.com/isobar-xds/isobar/internal/plural"
)

// defaultConfig is the configuration file that commands take without -c.
const defaultConfig = "isobar.yaml"

func checkCommand() *cobra.Command {
	file, strict := defaultConfig, false
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file: every error with its position and the fix",
		Long: `Check a configuration file. The command prints all errors and warnings, each as
file:line:column: the error; how to fix it. The exit status is 0 if
a server would accept the file, even with warnings; with --strict, warnings fail.
For certificate and token files that the command can't use on this machine, it
prints warnings, not errors, because the server may run on another machine. It also
warns of certificates, including those of client_ca, that have expired or expire
soon; of services without capacity or health checks; and of regions that only one
service names and that look like a misspelling of another region.`,
		Example: "  isobar check isobar.yaml\n  isobar check -c isobar.yaml\n  isobar check - < isobar.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readConfigFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, warnings, err := config.Decode(inputName(file), data)
			printWarnings(cmd.ErrOrStderr(), warnings)
			if err != nil {
				return err
			}
			more := slices.Concat(missingFiles(c), endingCertificates(c, time.Now()), lacks(c), misspelledRegions(c))
			for _, err := range more {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %v\n", inputName(file), err) // nobody to tell
			}
			if n := len(warnings) + len(more); strict && n > 0 {
				return fmt.Errorf("%s: %s; --strict treats warnings as errors", inputName(file), plural.Count(n, "warning", "warnings"))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), inputName(file)+": ok, "+contents(c))
			return err
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail if there are warnings")
	registerConfig(cmd, &file, "configuration file; - for standard input")
	return cmd
}

// registerConfig lets a command take its configuration file by -c or as its
// argument, but not by both. file holds the default.
func registerConfig(cmd *cobra.Command, file *string, usage string) {
	extensions := []string{"yaml", "yml", "json"}
	cmd.Flags().StringVarP(file, "config", "c", *file, usage)
	_ = cmd.MarkFlagFilename("config", extensions...) // fails only for a flag that does not exist
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(1)(cmd, args); err != nil || len(args) == 0 {
			return err
		}
		if cmd.Flags().Changed("config") && *file != args[0] {
			return usagef("two configuration files, %s by -c and %s: give one", *file, args[0])
		}
		*file = args[0]
		return nil
	}
}

// readConfigFile reads the bytes of a configuration, as readInput does.
func readConfigFile(file string, stdin io.Reader) ([]byte, error) {
	data, err := readInput(file, stdin)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: give the configuration with -c FILE; examples/isobar.yaml is an example", err)
	}
	return data, err
}

func printWarnings(stderr io.Writer, warnings []config.Problem) {
	for _, w := range warnings {
		_, _ = fmt.Fprintln(stderr, w) // nobody to tell
	}
}

func inputName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

// readInput reads a file or, for "-", stdin (nil = no such special name); one
// byte more than allowed is enough for the decoder to refuse it.
func readInput(file string, stdin io.Reader) (data []byte, err error) {
	if file == "-" && stdin != nil {
		data, err = io.ReadAll(io.LimitReader(stdin, config.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return data, nil
	}
	f, err := os.Open(file) //nolint:gosec // the user's own file
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return filewatch.ReadAll(f, info.Size(), config.MaxBytes+1)
}

// contents says in a few words what is configured.
func contents(c *config.Config) string {
	localities, endpoints := map[isobar.Locality]bool{}, 0
	for i := range c.Services {
		for _, l := range c.Services[i].Localities {
			localities[l.Locality] = true
			endpoints += len(l.Endpoints)
		}
	}
	text := fmt.Sprintf("%s in %s with %s", plural.Count(len(c.Services), "service", "services"),
		plural.Count(len(localities), "locality", "localities"), plural.Count(endpoints, "endpoint", "endpoints"))
	if c.Discovery.XDS != nil {
		text += fmt.Sprintf(", and %s whose endpoints %s lists", plural.Count(len(c.Discovery.XDS.Services), "service", "services"), c.Discovery.XDS.Server)
	}
	if c.Discovery.DNS != nil {
		text += fmt.Sprintf(", and %s whose endpoints DNS lists", plural.Count(len(c.Discovery.DNS.Services), "service", "services"))
	}
	if c.Discovery.Kubernetes != nil {
		text += ", and " + describeKubernetes(c.Discovery.Kubernetes)
	}
	return text
}

// describeKubernetes says which Services of a cluster are chosen.
func describeKubernetes(k *config.KubernetesDiscovery) string {
	text := "the Services of a Kubernetes cluster"
	if len(k.Namespaces) > 0 {
		text += " in " + plural.Count(len(k.Namespaces), "namespace", "namespaces")
	}
	if k.Selector != "" {
		text += " with the labels " + k.Selector
	}
	return text + fmt.Sprintf(" (%s with settings)", plural.Count(len(k.Services), "service", "services"))
}

// listener has the files of the certificates of a listener.
type listener struct {
	name  string
	files *identity.Files // nil = plaintext
}

func listenerFiles(c *config.Config) []listener {
	out := []listener{{"xds", c.XDS.TLS}, {"admin", c.Admin.TLS}}
	if c.Replicas != nil {
		out = append(out, listener{member.Listener, c.Replicas.TLS})
	}
	return out
}

// missingFiles says of the files that a configuration names, certificates and a
// token, which can't be used on this machine, and what follows.
func missingFiles(c *config.Config) (out []error) {
	note := func(err error, follows string) {
		if err != nil {
			out = append(out, fmt.Errorf("%w; on this machine Isobar would not %s", err, follows))
		}
	}
	for _, l := range listenerFiles(c) {
		if l.files != nil {
			_, err := identity.OpenCertificates(*l.files, identity.Options{Name: l.name})
			note(err, "start")
		}
	}
	if path := c.Admin.TokenFile; path != "" {
		_, err := identity.OpenToken(path, identity.Options{Name: "admin"})
		note(err, "start")
	}
	if c.Discovery.XDS != nil && c.Discovery.XDS.TLS != nil {
		f := c.Discovery.XDS.TLS
		if _, err := (identity.DialFiles{CA: f.CA, Cert: f.Cert, Key: f.Key}).Config(); err != nil {
			note(fmt.Errorf("certificates of discovery.xds: %w", err), "connect")
		}
	}
	return out
}

// endingCertificates reports the certificates that a configuration names and that
// have expired, are not valid yet, or soon end, as the server would when it runs.
func endingCertificates(c *config.Config, now time.Time) (out []error) {
	note := func(name string, from, until time.Time) {
		if a, needs := (&admin.Certificate{Name: name, NotBefore: from, NotAfter: until}).Attention(now); needs {
			out = append(out, fmt.Errorf("%s", a.Text))
		}
	}
	for _, l := range listenerFiles(c) {
		if l.files == nil {
			continue
		}
		if shown, err := identity.OpenCertificates(*l.files, identity.Options{Name: l.name}); err == nil {
			from, until := shown.Validity()
			note(l.name, from, until)
			for _, x := range shown.Authorities() {
				ca := admin.Authority{Certificate: admin.Certificate{Name: l.name, NotBefore: x.From, NotAfter: x.Until}, Subject: x.Name}
				if a, needs := ca.Attention(now); needs {
					out = append(out, errors.New(a.Text))
				}
			}
		}
	}
	if c.Discovery.XDS != nil && c.Discovery.XDS.TLS != nil {
		f := identity.DialFiles{CA: c.Discovery.XDS.TLS.CA, Cert: c.Discovery.XDS.TLS.Cert, Key: c.Discovery.XDS.TLS.Key}
		if from, until, shown, err := f.Validity(); shown && err == nil {
			note(admin.DiscoveryCertificate, from, until)
		}
	}
	return out
}

// lacks reports services of which a plan knows little: a line of each kind, however
// many services there are.
func lacks(c *config.Config) (out []error) {
	var capacity, checks []string
	look := func(s *isobar.Service) {
		if !knowsCapacity(s) {
			capacity = append(capacity, s.Name)
		}
		if len(s.HealthChecks) == 0 {
			checks = append(checks, s.Name)
		}
	}
	for i := range c.Services {
		look(&c.Services[i])
	}
	if c.Discovery.XDS != nil { // another control plane may report health
		for i := range c.Discovery.XDS.Services {
			if s := &c.Discovery.XDS.Services[i].Service; len(s.Localities) > 0 && !knowsCapacity(s) {
				capacity = append(capacity, s.Name)
			}
		}
	}
	if len(capacity) > 0 {
		out = append(out, fmt.Errorf("%s without capacity in some locality (%s): Isobar assumes there that capacity equals the load, so it can't prevent overload; "+
			"give max_rate or orca: true, or leave out capacity_trust: declared", plural.Count(len(capacity), "service", "services"), someNames(capacity)))
	}
	if len(checks) > 0 {
		out = append(out, fmt.Errorf("%s without health_checks (%s): endpoints that fail get traffic until clients eject them or an operator sets their health; "+
			"add health_checks and run `isobar checker`", plural.Count(len(checks), "service", "services"), someNames(checks)))
	}
	return out
}

// misspelledRegions reports regions that only one service names, where another service or the
// network names one that is spelled nearly the same: the locality would count as far away from
// all clients.
func misspelledRegions(c *config.Config) (out []error) {
	users := map[string]map[string]bool{} // by region; a key "" = the network
	use := func(region, by string) {
		if region == "" {
			return
		}
		if users[region] == nil {
			users[region] = map[string]bool{}
		}
		users[region][by] = true
	}
	each := func(s *isobar.Service) {
		for i := range s.Localities {
			use(s.Localities[i].Locality.Region, s.Name)
		}
	}
	for i := range c.Services {
		each(&c.Services[i])
	}
	if c.Discovery.XDS != nil {
		for i := range c.Discovery.XDS.Services {
			each(&c.Discovery.XDS.Services[i].Service)
		}
	}
	for _, r := range c.Network.Rules() {
		use(r.From.Region, "")
		use(r.To.Region, "")
	}
	for _, r := range c.Network.Egress() {
		use(r.From.Region, "")
		use(r.To.Region, "")
	}
	for _, region := range slices.Sorted(maps.Keys(users)) {
		by := slices.Collect(maps.Keys(users[region]))
		if len(by) != 1 || by[0] == "" {
			continue
		}
		var meant []string
		for _, other := range slices.Sorted(maps.Keys(users)) {
			if known := users[other]; (len(known) > 1 || !known[by[0]]) && strict.Misspelled(region, other) {
				meant = append(meant, other)
			}
		}
		if len(meant) > 0 {
			out = append(out, fmt.Errorf("no other service and no network entry names the region %s of service %s, "+
				"so it counts as far away from all others; did you mean %s?", region, by[0], strings.Join(meant, " or ")))
		}
	}
	return out
}

// knowsCapacity reports whether the capacity of each locality of a service is declared,
// or comes to be known from reports.
func knowsCapacity(s *isobar.Service) bool {
	if s.ORCA.On || s.CapacityTrust.Observed() || len(s.Limits) > 0 {
		return true
	}
	for i := range s.Localities {
		l := &s.Localities[i]
		declared := l.MaxRate > 0 || len(l.Endpoints) == 0
		for j := range l.Endpoints {
			declared = declared || l.Endpoints[j].MaxRate > 0
		}
		if !declared {
			return false
		}
	}
	return true
}

// someNames lists the first few names.
func someNames(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
