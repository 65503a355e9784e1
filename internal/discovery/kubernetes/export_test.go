package kubernetes

import "time"

// Retry hands over at once what the registry has refused.
func (p *Provider) Retry() { p.retry() }

// DueStatuses counts the policies whose statuses have to be written.
func (p *Provider) DueStatuses() int { return len(p.dueStatuses(time.Now())) }
