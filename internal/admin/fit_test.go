package admin_test

import (
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/source"
)

// The registry fits the interface as it is.
var _ admin.Objects = (*source.Registry)(nil)
