package kubernetes

// Retry hands over at once what the registry has refused.
func (p *Provider) Retry() { p.retry() }
