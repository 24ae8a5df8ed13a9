// Applies the chosen theme before anything is drawn, so that a dark page does not flash white.
(() => {
  const CHOICES = ["auto", "light", "dark"];
  const kept = () => {
    try {
      return localStorage.getItem("carico-theme");
    } catch {
      return null; // storage may be blocked; then the theme is not kept
    }
  };
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  };
  const start = CHOICES.includes(kept()) ? kept() : "auto";
  use(start);
  addEventListener("DOMContentLoaded", () => {
    use(start);
    document.getElementById("theme").addEventListener("click", () => {
      const next = CHOICES[(CHOICES.indexOf(document.documentElement.dataset.theme) + 1) % CHOICES.length];
      try {
        localStorage.setItem("carico-theme", next);
      } catch {
        // as above
      }
      use(next);
      dispatchEvent(new Event("theme"));
    });
  });
})();
