package site

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"

	"github.com/yuin/goldmark/ast"
)

// connect makes the links of a page lead to what the site has, and notes what it still needs.
func (b *builder) connect(p *page) error {
	var problems []error
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var destination *[]byte
		switch n := n.(type) {
		case *ast.Link:
			destination = &n.Destination
		case *ast.Image:
			destination = &n.Destination
		default:
			return ast.WalkContinue, nil
		}
		leads, err := b.resolve(p, string(*destination))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: the link %s: %w", p.path, *destination, err))
		}
		*destination = []byte(leads)
		return ast.WalkContinue, nil
	})
	return errors.Join(problems...)
}

// resolve is where a link of a page leads to in the site.
func (b *builder) resolve(p *page, link string) (string, error) {
	target, err := url.Parse(link)
	if err != nil {
		return "", err
	}
	if target.Scheme != "" {
		if target.Scheme != "https" && target.Scheme != "http" {
			return "", fmt.Errorf("the scheme %s is not for links", target.Scheme)
		}
		return link, nil
	}
	if target.Host != "" || path.IsAbs(target.Path) {
		return "", errors.New("it must begin at the page")
	}
	if target.Path == "" {
		if !p.has(target.Fragment) {
			return "", errors.New("the page has no such heading")
		}
		return link, nil
	}
	to := path.Join(path.Dir(p.path), target.Path)
	info, err := fs.Stat(b.repository, to)
	if err != nil {
		return "", err
	}
	if info.IsDir() && b.pages[path.Join(to, "README.md")] != nil {
		to = path.Join(to, "README.md")
	}
	other := b.pages[to]
	if other == nil {
		if target.Fragment != "" {
			return "", errors.New("only a page has headings")
		}
		return b.want(p, to, info.IsDir()), nil
	}
	href := relative(p.href, other.href)
	if target.Fragment != "" {
		if !other.has(target.Fragment) {
			return "", errors.New("that page has no such heading")
		}
		href += "#" + target.Fragment
	}
	return href, nil
}

// want notes that a page leads to a file or directory of the repository that is no page, and
// returns how.
func (b *builder) want(p *page, file string, directory bool) string {
	if b.source != "" && !isMedia(file) {
		return b.source + file
	}
	b.needs(file)
	if directory {
		return relative(p.href, file+"/index.html")
	}
	return relative(p.href, hrefOf(file))
}

// needs has a file or directory shown, once.
func (b *builder) needs(file string) {
	href := hrefOf(file)
	if _, made := b.files[href]; !made && !slices.Contains(b.wanted, file) {
		b.wanted = append(b.wanted, file)
	}
}
