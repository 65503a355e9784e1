package main

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

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
}

func (f *remoteFlags) register(cmd *cobra.Command) {
	f.registerServer(cmd)
	f.output.register(cmd)
}

// registerServer adds those that say whom to ask, and not how to answer.
func (f *remoteFlags) registerServer(cmd *cobra.Command) {
	address := os.Getenv(adminEnv)
	if address == "" {
		address = defaultAdmin
	}
	cmd.Flags().StringVar(&f.admin, "admin", address, "address of the admin interface, also from $"+adminEnv)
	fs := cmd.Flags()
	fs.StringVar(&f.token, "token-file", os.Getenv(tokenEnv), "file with the bearer token to show, also from $"+tokenEnv)
	fs.StringVar(&f.tls.CA, "ca", os.Getenv(caEnv), "authorities (PEM) that sign the server's certificate, for https; also from $"+caEnv)
	fs.StringVar(&f.tls.Cert, "cert", os.Getenv(certEnv), "client certificate (PEM); also from $"+certEnv)
	fs.StringVar(&f.tls.Key, "key", os.Getenv(keyEnv), "the key of --cert (PEM); also from $"+keyEnv)
}

// remote gives the server to ask.
func (f *remoteFlags) remote() (*admin.Remote, error) {
	options := []admin.RemoteOption{admin.WithHint(identity.TLSHint)}
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
