package providers

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
)

var dnsFamilies = map[string]dns.Family{"auto": dns.Auto, "ipv4": dns.IPv4, "ipv6": dns.IPv6}

// dnsConfig translates; nil stays nil.
func dnsConfig(c *config.DNSDiscovery) *dns.Config {
	if c == nil {
		return nil
	}
	out := &dns.Config{
		Servers: c.Servers, MinTTL: c.MinTTL, Timeout: c.Timeout, EmptyHold: c.EmptyHold, Services: make([]dns.Service, len(c.Services)),
	}
	for i := range c.Services {
		svc := &c.Services[i]
		lookups := make([][]dns.Lookup, len(svc.Lookups))
		for j, names := range svc.Lookups {
			for _, l := range names {
				lookups[j] = append(lookups[j], dns.Lookup{Name: l.Name, SRV: l.SRV, Port: l.Port, Family: dnsFamilies[l.Family]})
			}
		}
		out.Services[i] = dns.Service{Settings: svc.Service, Lookups: lookups}
	}
	return out
}

// dnsGrace is for how long a name may get no answer without a word: servers
// restart, too.
const dnsGrace = time.Minute

// dnsTroubles tells operators which names are not resolved as they should be.
func dnsTroubles(names *dns.Provider) []admin.Attention {
	st, ok := names.Status()
	if !ok {
		return nil
	}
	var out []admin.Attention
	for i := range st.Services {
		svc := &st.Services[i]
		if svc.Refused != "" {
			out = append(out, admin.NewAttention(admin.DiscoveryRefused, "%s: Isobar refuses the endpoints from DNS: %s", svc.Name, svc.Refused).Of(svc.Name))
		}
		for j := range svc.Lookups {
			if code, text := lookupTrouble(svc, &svc.Lookups[j]); text != "" {
				out = append(out, admin.NewAttention(code, "%s: %s", svc.Name, text).Of(svc.Name).At(svc.Lookups[j].Locality))
			}
		}
	}
	return out
}

// lookupTrouble says what is wrong with a name; empty where nothing is.
func lookupTrouble(svc *dns.ServiceStatus, l *dns.LookupStatus) (admin.Code, string) {
	failure := ""
	if l.Failure != "" {
		failure = ": " + l.Failure
	}
	switch l.State {
	case dns.Waiting:
		return admin.DiscoveryWaiting, fmt.Sprintf("no endpoints in %s yet: %s has not been resolved%s", l.Locality, l.Name, failure)
	case dns.Empty:
		return admin.DiscoveryHeld, fmt.Sprintf("no endpoints in %s: %s has no records", l.Locality, l.Name)
	case dns.Held:
		return admin.DiscoveryHeld, fmt.Sprintf("%s no longer has records; Isobar keeps its %d endpoints in %s for now", l.Name, l.Endpoints, l.Locality)
	case dns.Kept:
		if !svc.Unconfirmed.IsZero() && time.Since(svc.Unconfirmed) > dnsGrace {
			return admin.DiscoveryLost, fmt.Sprintf("%s has not been resolved since %s, so Isobar keeps its %d endpoints in %s%s",
				l.Name, svc.Unconfirmed.UTC().Format(time.RFC3339), l.Endpoints, l.Locality, failure)
		}
	case dns.Current:
	}
	return "", ""
}
