"""The headers of every page: nothing from elsewhere, no markup made of text, in nobody's frame."""


def page_headers(scripts: str, styles: str) -> dict[str, str]:
    """For a page whose scripts and styles come from there. A text that somehow became markup would still not be run."""
    policy = (
        "default-src 'none'",
        f"script-src {scripts}",
        f"style-src {styles}",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
