package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
)

// packed is one file of the tarball.
type packed struct {
	from string // the file that has its content; or
	text []byte // its content; or
	link string // what it is a link to
	mode int64
}

// tarball packs the programs in the arrangement in which make leaves them, so that they are
// found where they are looked for.
func (r *release) tarball() error {
	notices, err := r.notices(programs)
	if err != nil {
		return err
	}
	content := map[string]packed{
		"NOTICES":                      {text: notices, mode: 0o644},
		"LICENSE":                      {from: filepath.Join(r.root, "LICENSE"), mode: 0o644},
		"sandbox.hcl":                  {from: filepath.Join(r.root, "sandbox.hcl"), mode: 0o644},
		"bin/gvisor-bin/gvisor_sentry": {link: "../runsc", mode: 0o777},
	}
	for _, program := range programs {
		content["bin/"+program] = packed{from: filepath.Join(r.bin, program), mode: 0o755}
	}
	archive, err := r.archive(content)
	if err != nil {
		return err
	}
	return r.write(r.name()+".tar.gz", archive)
}

func (r *release) archive(content map[string]packed) ([]byte, error) {
	var archive bytes.Buffer
	zip, err := gzip.NewWriterLevel(&archive, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	tarball := tar.NewWriter(zip)
	for _, name := range sorted(content) {
		file := content[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: r.name() + "/" + name, Mode: file.mode, ModTime: r.time, Format: tar.FormatPAX}
		text := file.text
		switch {
		case file.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.link
		case file.from != "":
			if text, err = os.ReadFile(file.from); err != nil {
				return nil, err
			}
		}
		header.Size = int64(len(text))
		if err := tarball.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := tarball.Write(text); err != nil {
			return nil, err
		}
	}
	if err := tarball.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
