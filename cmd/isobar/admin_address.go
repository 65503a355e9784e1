package main

import (
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

// The address of the admin interface, where neither flag nor environment say.
const (
	defaultAdmin = "http://127.0.0.1:18080"
	adminEnv     = "ISOBAR_ADMIN"
)

// remoteFlags are the flags of the commands that ask a running server.
type remoteFlags struct {
	admin  string
	output outputFormat
}

func (f *remoteFlags) register(cmd *cobra.Command) {
	address := os.Getenv(adminEnv)
	if address == "" {
		address = defaultAdmin
	}
	cmd.Flags().StringVar(&f.admin, "admin", address, "address of the admin interface, also from $"+adminEnv)
	f.output.register(cmd)
}

// remote gives the server to ask.
func (f *remoteFlags) remote() (*admin.Remote, error) {
	return admin.NewRemote(f.admin)
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
