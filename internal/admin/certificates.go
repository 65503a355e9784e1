package admin

import "time"

// Certificate is one that the server shows.
type Certificate struct {
	Name      string    `json:"name"` // of the listener, or DiscoveryCertificate
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"` // of the chain's certificate that ends first
}

// DiscoveryCertificate is the name of the certificate that is shown to the control
// plane that lists endpoints.
const DiscoveryCertificate = "discovery.xds"

// where tells in words who sees it, and what fails without it.
func (c *Certificate) where() (seen, fails string) {
	if c.Name == DiscoveryCertificate {
		return DiscoveryCertificate, "the next connection to the other control plane fails"
	}
	return "the listener " + c.Name, "new connections fail"
}

// certificateWarning is how long before its end a certificate needs attention:
// a weekend, a holiday and a day to spare.
const certificateWarning = 14 * 24 * time.Hour

// NeedsAttention tells whether a certificate ends soon: in less than 14 days,
// or where it was issued for less than eight weeks, in less than a quarter of
// that. Those who issue them for hours replace them at half of their time.
func (c *Certificate) NeedsAttention(now time.Time) bool {
	return c.NotAfter.Sub(now) < min(certificateWarning, c.NotAfter.Sub(c.NotBefore)/4)
}

// Attention tells what needs attention about a certificate, if anything does.
func (c *Certificate) Attention(now time.Time) (a Attention, needs bool) {
	end := c.NotAfter.UTC().Format(time.RFC3339)
	seen, fails := c.where()
	switch {
	case !now.Before(c.NotAfter):
		return NewAttention(CertificateExpired, "the certificate of %s has expired at %s: %s", seen, end, fails), true
	case now.Before(c.NotBefore):
		return NewAttention(CertificateExpired, "the certificate of %s is not valid before %s: %s", seen, c.NotBefore.UTC().Format(time.RFC3339), fails), true
	case c.NeedsAttention(now):
		return NewAttention(CertificateEnds, "the certificate of %s ends at %s: replace its files, no restart is needed", seen, end), true
	}
	return a, false
}

func (b *statusBuilder) certificates(all []Certificate, now time.Time) {
	b.Certificates = append(b.Certificates, all...)
	for i := range all {
		if a, needs := all[i].Attention(now); needs {
			b.attend(a)
		}
	}
}
