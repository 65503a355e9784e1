package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
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
	if c.Discovery.XDS != nil && c.Discovery.XDS.TLS != nil {
		f := c.Discovery.XDS.TLS
		if _, err := (identity.DialFiles{CA: f.CA, Cert: f.Cert, Key: f.Key}).Config(); err != nil {
			note(fmt.Errorf("certificates of discovery.xds: %w", err), "connect")
		}
	}
	return out
}

// endingCertificates tells of the certificates that a configuration names and that
// have expired, are not valid yet, or soon end, as the server would when it runs.
func endingCertificates(c *config.Config, now time.Time) (out []error) {
	note := func(name string, from, until time.Time) {
		if a, needs := (&admin.Certificate{Name: name, NotBefore: from, NotAfter: until}).Attention(now); needs {
			out = append(out, fmt.Errorf("%s", a.Text))
		}
	}
	for _, l := range []struct {
		name  string
		files *identity.Files
	}{{"xds", c.XDS.TLS}, {"admin", c.Admin.TLS}} {
		if l.files == nil {
			continue
		}
		if shown, err := identity.OpenCertificates(*l.files, identity.Options{Name: l.name}); err == nil {
			from, until := shown.Validity()
			note(l.name, from, until)
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

// lacks tells of services of which a plan knows little: a line of each kind, however
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
	if c.Discovery.XDS != nil { // another control plane tells of health
		for i := range c.Discovery.XDS.Services {
			if s := &c.Discovery.XDS.Services[i].Service; len(s.Localities) > 0 && !knowsCapacity(s) {
				capacity = append(capacity, s.Name)
			}
		}
	}
	if len(capacity) > 0 {
		out = append(out, fmt.Errorf("%s without capacity in some locality (%s): Isobar takes capacity there to equal the load, and so can't prevent overload; "+
			"give max_rate or orca: true, or leave out capacity_trust: declared", count(len(capacity), "service", "services"), someNames(capacity)))
	}
	if len(checks) > 0 {
		out = append(out, fmt.Errorf("%s without health_checks (%s): endpoints that fail get traffic until clients eject them or an operator sets their health; "+
			"add health_checks and run `isobar checker`", count(len(checks), "service", "services"), someNames(checks)))
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
