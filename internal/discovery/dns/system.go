package dns

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
)

// systemServers are those of the system's file, which is read again when it has
// changed.
type systemServers struct {
	path string

	mu      sync.Mutex
	size    int64
	at      time.Time // of the file's last change
	servers []string
}

// list gives the servers. Without a file, or without a server in it, that is the
// one on this machine, as for the system's own resolver.
func (s *systemServers) list() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if os.IsNotExist(err) {
		return []string{"127.0.0.1:53"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("discovery.dns: the system's servers: %w", err)
	}
	if s.servers != nil && info.ModTime().Equal(s.at) && info.Size() == s.size {
		return s.servers, nil
	}
	conf, err := miekg.ClientConfigFromFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("discovery.dns: the system's servers: %w", err)
	}
	servers := make([]string, 0, max(1, len(conf.Servers)))
	for _, host := range conf.Servers {
		if address := net.JoinHostPort(host, "53"); !slices.Contains(servers, address) {
			servers = append(servers, address)
		}
	}
	if len(servers) == 0 {
		servers = append(servers, "127.0.0.1:53")
	}
	s.size, s.at, s.servers = info.Size(), info.ModTime(), servers
	return servers, nil
}
