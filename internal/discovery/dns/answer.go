package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	miekg "github.com/miekg/dns"
)

// answer is what a message says about a question.
type answer struct {
	addresses []netip.Addr
	targets   []target
	alias     string        // the name is an alias of this one, of which the message has no records
	ttl       time.Duration // the least of all records that count; of an answer without records, how long that counts
}

// target is one SRV record.
type target struct {
	host             string
	port             uint16
	priority, weight uint16
}

// none reports whether the name has no such records, or does not exist.
func (a *answer) none() bool { return len(a.addresses) == 0 && len(a.targets) == 0 && a.alias == "" }

// maxAliases is how many CNAME records are followed.
const maxAliases = 16

// readAnswer reads the answer to a question for records of a type. An error says
// that the server does not know.
func readAnswer(m *miekg.Msg, name string, kind uint16) (answer, error) {
	if err := answers(m, name, kind); err != nil {
		return answer{}, err
	}
	switch m.Rcode {
	case miekg.RcodeSuccess:
	case miekg.RcodeNameError:
		return answer{ttl: negativeTTL(m)}, nil
	default:
		return answer{}, fmt.Errorf("the server answers %s", rcode(m.Rcode))
	}
	a, last, err := follow(m, name)
	if err != nil {
		return answer{}, err
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Rrtype != kind || h.Class != miekg.ClassINET || !sameName(h.Name, last) {
			continue
		}
		if !a.add(rr) {
			continue
		}
		a.shorten(h.Ttl)
	}
	switch {
	case len(a.addresses)+len(a.targets) > 0:
		return a, nil
	case !sameName(last, name): // an alias: its records may have to be asked for
		a.alias = last
		return a, nil
	case refers(m):
		return answer{}, errors.New("the server refers to other servers: name one that resolves recursively")
	default:
		return answer{ttl: negativeTTL(m)}, nil
	}
}

// answers reports what keeps a message from being the answer to a question.
func answers(m *miekg.Msg, name string, kind uint16) error {
	if !m.Response || m.Opcode != miekg.OpcodeQuery {
		return errors.New("the message is not a response")
	}
	if len(m.Question) != 1 || m.Question[0].Qtype != kind || !sameName(m.Question[0].Name, name) {
		return errors.New("the response is to another query")
	}
	return nil
}

// follow goes from a name along its aliases to the last one.
func follow(m *miekg.Msg, name string) (a answer, last string, err error) {
	a.ttl = maxTTL
	last = name
	for range maxAliases {
		next := ""
		for _, rr := range m.Answer {
			if c, ok := rr.(*miekg.CNAME); ok && sameName(c.Hdr.Name, last) {
				next = c.Target
				a.shorten(c.Hdr.Ttl)
				break
			}
		}
		if next == "" {
			return a, last, nil
		}
		last = next
	}
	return a, last, fmt.Errorf("more than %d aliases lead from %s", maxAliases, printable(name))
}

// add takes a record into the answer and reports whether it counts.
func (a *answer) add(rr miekg.RR) bool {
	switch rr := rr.(type) {
	case *miekg.A:
		return a.addAddress(rr.A)
	case *miekg.AAAA:
		return a.addAddress(rr.AAAA)
	case *miekg.SRV:
		a.targets = append(a.targets, target{host: rr.Target, port: rr.Port, priority: rr.Priority, weight: rr.Weight})
		return true
	default:
		return false
	}
}

func (a *answer) addAddress(ip []byte) bool {
	address, ok := netip.AddrFromSlice(ip)
	if ok {
		a.addresses = append(a.addresses, address.Unmap())
	}
	return ok
}

// shorten lets the answer count for no longer than a record does.
func (a *answer) shorten(ttl uint32) { a.ttl = min(a.ttl, seconds(ttl)) }

// seconds reads a TTL: one with the highest bit set is 0 (RFC 2181, section 8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// negativeTTL is how long it counts that there is nothing (RFC 2308, section 5).
func negativeTTL(m *miekg.Msg) time.Duration {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*miekg.SOA); ok {
			return min(seconds(soa.Hdr.Ttl), seconds(soa.Minttl))
		}
	}
	return 0
}

// refers reports whether a message without records names other servers instead
// of saying that there are none.
func refers(m *miekg.Msg) bool {
	named := false
	for _, rr := range m.Ns {
		switch rr.(type) {
		case *miekg.SOA:
			return false
		case *miekg.NS:
			named = true
		}
	}
	return named && !m.Authoritative
}

func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

func rcode(code int) string {
	if text, ok := miekg.RcodeToString[code]; ok {
		return text
	}
	return fmt.Sprintf("code %d", code)
}
