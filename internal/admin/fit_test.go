package admin_test

import (
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/discovery"
)

// The registry fits the interface as it is.
var _ admin.Objects = (*discovery.Registry)(nil)
