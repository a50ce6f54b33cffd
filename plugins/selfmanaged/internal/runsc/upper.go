package runsc

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
)

// Names and marks of layers, and of what gVisor has in their place.
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	opaqueRecord   = "SCHILY.xattr.trusted.overlay.opaque"
)

// Layer makes an archive of Changes one of a layer of an image, without what is at or below the
// paths that are left out. It takes every archive: what is wrong with it is for who unpacks it.
func Layer(from io.Reader, to io.Writer, leftOut []string) error {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	whiteouts := map[string]bool{}
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		for _, h := range ofLayer(header, leftOut, whiteouts) {
			if err := out.WriteHeader(h); err != nil {
				return err
			}
			if h.Typeflag != tar.TypeReg || h.Size == 0 {
				continue
			}
			if _, err := io.Copy(out, in); err != nil {
				return err
			}
		}
	}
}

// ofLayer are the entries of a layer for an entry of Changes. whiteouts are the names that
// remove something, to which it adds.
func ofLayer(h *tar.Header, leftOut []string, whiteouts map[string]bool) []*tar.Header {
	name := below(h.Name)
	dir, base := path.Split(name)
	// Whiteouts after the first are hard links to it.
	removes := h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 || h.Typeflag == tar.TypeLink && whiteouts[below(h.Linkname)]
	if removes {
		whiteouts[name] = true
	}
	covered := func(out string) bool { return name == out || strings.HasPrefix(name, out+"/") }
	switch {
	case name == "" || slices.ContainsFunc(leftOut, covered):
		return nil
	case strings.HasPrefix(base, whiteoutPrefix): // a program may have given a file a name that would remove others
		return nil
	case removes:
		return []*tar.Header{{Typeflag: tar.TypeReg, Name: dir + whiteoutPrefix + base, Format: tar.FormatPAX}}
	}
	kept := &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid,
		ModTime: h.ModTime, Devmajor: h.Devmajor, Devminor: h.Devminor, Format: tar.FormatPAX,
	}
	if h.Typeflag == tar.TypeLink {
		kept.Linkname = below(h.Linkname)
	}
	if h.Typeflag != tar.TypeReg {
		kept.Size = 0
	}
	list := []*tar.Header{kept}
	if h.Typeflag == tar.TypeDir && h.PAXRecords[opaqueRecord] == "y" {
		list = append(list, &tar.Header{Typeflag: tar.TypeReg, Name: name + "/" + opaqueName, Format: tar.FormatPAX})
	}
	return list
}

// below is a name of an archive without what leads to its root. What leads elsewhere stays, to
// be refused.
func below(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "."), "/"), "/")
}
