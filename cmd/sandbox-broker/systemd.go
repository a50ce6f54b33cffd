package main

import (
	"fmt"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/listen"
)

// inheritedSockets are those of a .socket unit. The variables that tell of them are removed.
func inheritedSockets() (*listen.Sockets, error) {
	sockets, err := listen.Inherit(activation.Files(true))
	if err != nil {
		return nil, fmt.Errorf("socket activation: %w", err)
	}
	return sockets, nil
}

// tellServiceManager says what the broker has come to, if a service manager waits for that
// (Type=notify).
func tellServiceManager(logger hclog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		logger.Warn("the service manager cannot be told", "state", state, "error", err)
	}
}
