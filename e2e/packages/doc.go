// Package packages has tests of what `make packages` and `make release` make: the Debian
// packages, in machines with systemd (package machine), and the images, in a Docker Engine.
// `make test-all PART=installed` runs them.
package packages
