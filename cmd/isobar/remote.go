package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/identity"
)

// The address of the admin interface, where neither flag nor environment say,
// and the variables of the environment.
const (
	defaultAdmin = "http://127.0.0.1:18080"
	adminEnv     = "ISOBAR_ADMIN"
	tokenEnv     = "ISOBAR_TOKEN_FILE" //nolint:gosec // the name of a variable
	caEnv        = "ISOBAR_CA"
	certEnv      = "ISOBAR_CERT"
	keyEnv       = "ISOBAR_KEY"
)

// remoteFlags are the flags of the commands that ask a running server.
type remoteFlags struct {
	admin  string
	token  string // file
	tls    identity.DialFiles
	output outputFormat
	waits  func(host string) // gets the host of a server that takes long to answer; nil = no message
}

// slowAnswer is after how long a command says that it waits.
const slowAnswer = 3 * time.Second

func (f *remoteFlags) register(cmd *cobra.Command) {
	f.registerServer(cmd)
	f.output.register(cmd)
	f.waits = func(host string) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "isobar: %s has not answered for %s; still waiting\n", host, slowAnswer)
	}
}

// registerServer adds those that say whom to ask, and not how to answer.
func (f *remoteFlags) registerServer(cmd *cobra.Command) {
	address := os.Getenv(adminEnv)
	if address == "" {
		address = defaultAdmin
	}
	cmd.Flags().StringVar(&f.admin, "admin", address, "address of the admin interface; also from $"+adminEnv)
	fs := cmd.Flags()
	fs.StringVar(&f.token, "token-file", os.Getenv(tokenEnv), "file with the bearer token; also from $"+tokenEnv)
	fs.StringVar(&f.tls.CA, "ca", os.Getenv(caEnv), "authorities (PEM) that sign the server's certificate, for https; also from $"+caEnv)
	fs.StringVar(&f.tls.Cert, "cert", os.Getenv(certEnv), "client certificate (PEM); also from $"+certEnv)
	fs.StringVar(&f.tls.Key, "key", os.Getenv(keyEnv), "the key of --cert (PEM); also from $"+keyEnv)
}

// remote returns the server to ask.
func (f *remoteFlags) remote() (*admin.Remote, error) {
	options := []admin.RemoteOption{admin.WithHint(f.tls.Hint)}
	if f.waits != nil {
		options = append(options, admin.WithWait(slowAnswer, f.waits))
	}
	if f.tls != (identity.DialFiles{}) {
		config, err := f.tls.Config()
		if err != nil {
			return nil, fmt.Errorf("--ca, --cert, --key: %w", err)
		}
		options = append(options, admin.WithTLS(config))
	}
	if f.token != "" {
		token, err := identity.ReadToken(f.token)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		options = append(options, admin.WithToken(token))
	}
	remote, err := admin.NewRemote(f.admin, options...)
	if err != nil {
		return nil, usagef("--admin: %w", err)
	}
	return remote, nil
}

// maxShown bounds a text that comes from a client.
const maxShown = 300

// printable makes a text from the network safe for a terminal: one line, no
// control characters, bounded.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	if runes := []rune(s); len(runes) > maxShown {
		s = string(runes[:maxShown]) + "…"
	}
	return strings.TrimSpace(s)
}

// orDash shows an empty text as a dash, so that columns stay columns.
func orDash(s string) string {
	if s = printable(s); s == "" {
		return "-"
	}
	return s
}

// completionPatience bounds how long a key press may wait for the server.
const completionPatience = time.Second

// completeServices completes the argument of a number (0 is the first) with the
// names of the server's services; nothing where it does not answer.
func (f *remoteFlags) completeServices(number int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != number {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.services(cmd.Context(), start), cobra.ShellCompDirectiveNoFileComp
	}
}

func (f *remoteFlags) services(ctx context.Context, start string) []cobra.Completion {
	remote, err := f.remote()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	overview, err := remote.Overview(ctx)
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for i := range overview.Services {
		if name := overview.Services[i].Name; strings.HasPrefix(name, start) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// completeSources completes a flag with the client localities that the service
// of the first argument has demand from, and those in which it or another service has
// endpoints: clients there need not have sent anything. Without an argument it is all services.
func (f *remoteFlags) completeSources(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	remote, err := f.remote()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	service := ""
	if len(args) > 0 {
		service = args[0]
	}
	var out []cobra.Completion
	add := func(l isobar.Locality) {
		if name := l.String(); name != "" && strings.HasPrefix(name, start) {
			out = append(out, name)
		}
	}
	if view, err := remote.Plan(ctx, service); err == nil {
		for i := range view.Services {
			for _, s := range view.Services[i].Sources {
				add(s.Source)
			}
			for _, s := range view.Services[i].Localities {
				add(s.Locality)
			}
		}
	}
	if flows, err := remote.Flows(ctx); err == nil {
		for i := range flows.Zones {
			add(flows.Zones[i].Zone)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

// followed are TLS credentials that read their files again for each connection:
// short-lived certificates are renewed under a process that runs for months.
type followed struct {
	credentials.TransportCredentials // as read at the start

	files identity.DialFiles
	log   *slog.Logger
	last  *lastGood
}

// lastGood is shared by all copies of the credentials.
type lastGood struct {
	mu    sync.Mutex
	creds credentials.TransportCredentials
}

func followedCredentials(files identity.DialFiles, log *slog.Logger) (credentials.TransportCredentials, error) {
	config, err := files.Config()
	if err != nil {
		return nil, fmt.Errorf("--ca, --cert, --key: %w", err)
	}
	creds := credentials.NewTLS(config)
	return followed{TransportCredentials: creds, files: files, log: log, last: &lastGood{creds: creds}}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (f followed) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.newest().ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (f followed) Clone() credentials.TransportCredentials {
	f.TransportCredentials = f.TransportCredentials.Clone()
	return f
}

// newest are the credentials of what the files hold now or, if that is bad,
// held before.
func (f followed) newest() credentials.TransportCredentials {
	config, err := f.files.Config()
	f.last.mu.Lock()
	defer f.last.mu.Unlock()
	if err != nil {
		f.log.Error("rejected certificate files; the previous certificates stay in force", "error", err)
	} else {
		f.last.creds = credentials.NewTLS(config)
	}
	return f.last.creds
}

// dialCredentials decides how to connect to an address that a flag gives: TLS
// where certificates are given, and plaintext only on this machine unless that
// is written out.
func dialCredentials(flag, address string, files identity.DialFiles, plaintext bool, log *slog.Logger) (credentials.TransportCredentials, error) {
	host, _, err := hostPort(flag, address)
	if err != nil {
		return nil, err
	}
	if files.CA != "" {
		return followedCredentials(files, log)
	}
	switch {
	case files.Cert != "" || files.Key != "":
		return nil, usageError{errors.New("--cert, --key: give --ca, too, so that the connection uses TLS")}
	case !plaintext && !onLoopback(host):
		return nil, usagef("%s %q is not on this machine: give --ca FILE for TLS, or --insecure to go without", flag, address)
	}
	return insecure.NewCredentials(), nil
}

// hostPort splits the address that a flag gives.
func hostPort(flag, address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", 0, usagef("%s %q: want HOST:PORT, for example 127.0.0.1:18000", flag, address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, usagef("%s %q: the port must be a number from 1 to 65535", flag, address)
	}
	return host, uint16(number), nil
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
