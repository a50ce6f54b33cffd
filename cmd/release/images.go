package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// contexts lays out below images what `docker build` takes, one directory for each image:
// its Dockerfile, and below rootfs what is copied into it.
func (r *release) contexts() error {
	for name, content := range map[string]map[string]string{
		"broker": {
			"sandbox-broker":     "usr/lib/sandbox-broker/sandbox-broker",
			"plugins/aliyun":     "usr/lib/sandbox-broker/plugins/aliyun",
			"plugins/daytona":    "usr/lib/sandbox-broker/plugins/daytona",
			"plugins/e2b":        "usr/lib/sandbox-broker/plugins/e2b",
			"plugins/kubernetes": "usr/lib/sandbox-broker/plugins/kubernetes",
		},
		"self-managed": {
			"sandbox-broker":                     "usr/lib/sandbox-broker/sandbox-broker",
			"plugins/self_managed":               "usr/lib/sandbox-broker/plugins/self_managed",
			"sandbox-guest":                      "usr/lib/sandbox-broker/sandbox-guest",
			"runsc":                              "usr/lib/sandbox-broker/runsc",
			"gvisor-bin/gvisor-sentry-prewarmer": "usr/lib/sandbox-broker/gvisor-bin/gvisor-sentry-prewarmer",
		},
	} {
		if err := r.context(name, content); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

func (r *release) context(name string, content map[string]string) error {
	dir := filepath.Join(r.out, "images", name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for from, to := range content {
		program, err := os.ReadFile(filepath.Join(r.bin, from))
		if err != nil {
			return err
		}
		if err := r.place(filepath.Join(dir, "rootfs", to), program, 0o755); err != nil {
			return err
		}
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	notices, err := r.notices(sorted(content))
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"LICENSE": license, "notices": notices} {
		if err := r.place(filepath.Join(dir, "rootfs/usr/share/doc/sandbox-broker", name), text, 0o644); err != nil {
			return err
		}
	}
	if _, ok := content["runsc"]; ok {
		if err := os.Symlink("../runsc", filepath.Join(dir, "rootfs/usr/lib/sandbox-broker/gvisor-bin/gvisor_sentry")); err != nil {
			return err
		}
	}
	if err := r.place(filepath.Join(dir, "rootfs/etc/ssl/certs/ca-certificates.crt"), authorities(), 0o644); err != nil {
		return err
	}
	for _, file := range []string{"Dockerfile", "sandbox.hcl"} {
		text, err := os.ReadFile(filepath.Join(r.inputs, "images", name, file))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, file)
		if file == "sandbox.hcl" {
			to = filepath.Join(dir, "rootfs/etc/sandbox-broker", file)
		}
		if err := r.place(to, text, 0o644); err != nil {
			return err
		}
	}
	// A volume that is made of this belongs to the broker's user.
	return os.MkdirAll(filepath.Join(dir, "state"), 0o700)
}

// place makes a file with the time of the release.
func (r *release) place(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chtimes(path, r.time, r.time)
}

// authorities are those that Mozilla trusts, without those whose trust has conditions, which
// a file cannot say.
func authorities() []byte {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&file, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return file.Bytes()
}
