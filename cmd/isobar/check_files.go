package main

import (
	"fmt"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
)

// missingFiles says of the files that a configuration names, certificates and a
// token, which can't be used on this machine, and what follows.
func missingFiles(c *config.Config) (out []error) {
	note := func(err error, follows string) {
		if err != nil {
			out = append(out, fmt.Errorf("%w; on this machine it would not %s", err, follows))
		}
	}
	for _, l := range []struct {
		name  string
		files *identity.Files
	}{{"xds", c.XDS.TLS}, {"admin", c.Admin.TLS}} {
		if l.files != nil {
			_, err := identity.OpenCertificates(*l.files, identity.Options{Name: l.name})
			note(err, "start")
		}
	}
	if path := c.Admin.TokenFile; path != "" {
		_, err := identity.OpenToken(path, identity.Options{Name: "admin"})
		note(err, "start")
	}
	if c.Source != nil && c.Source.TLS != nil {
		f := c.Source.TLS
		if _, err := (identity.DialFiles{CA: f.CA, Cert: f.Cert, Key: f.Key}).Config(); err != nil {
			note(fmt.Errorf("certificates of source.xds: %w", err), "connect")
		}
	}
	return out
}
